"""Inputs of one step's kernels besides K and V: tables and lengths, transferred in one copy.

    decode rows   tables (B, max_blocks), contexts (B,)
    prefill spans tables (S, max_blocks), spans (S, 3), tiles (n, 2): a tile's span and first token

All of it is int32. Built from lists before the first layer; nothing is read back from the device.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kvscope_engine.model.step_batch import StepBatch

PREFILL_TILE = 128
"""Tokens of a span in one tile, which one or more programs share; a power of two."""
_PROGRAMS_PER_CORE = 8
"""Decode programs that keep a multiprocessor busy: two or three at once, and a short last wave."""
_FEWEST_KEYS, _MOST_KEYS = 128, 512
"""Lengths of a split: below, joining costs more than splitting saves; above, with a full device,
nothing is saved."""
_MOST_SPLITS = 32
"""The limit of one row: a few are joined at a time."""
_MOST_WAVES = 8
"""Bounds the splits' memory: a multiple of the programs that keep the device busy."""
_SKEW = 4
"""Assumed ratio of the longest to the mean context for splitting batches of unknown lengths."""

_Ints = np.ndarray[tuple[int, ...], np.dtype[np.int32]]


class PrefillTiles(NamedTuple):
    """The spans of a step, in pieces of PREFILL_TILE tokens."""

    tables: Tensor
    """(S, max_blocks); entries beyond a span's blocks are not read."""
    spans: Tensor
    """(S, 3): first token in the flattened batch, tokens, position of the first."""
    tiles: Tensor
    """(n, 2): span, and the piece's first token in it."""

    @property
    def num_tiles(self) -> int:
        return self.tiles.shape[0]


class Splitting(NamedTuple):
    """The splits of a step's rows, whose lengths may be known on the device alone."""

    splits: int
    """Programs that may share one row's keys, the same for all rows."""
    filling: int
    """Splits of each row that keep the device busy together."""
    fewest_keys: int
    most_keys: int
    """Bounds of a split's length, as far as there are splits enough."""


class DecodePlan:
    """One-token rows: their block tables, their lengths, and how finely they are split."""

    def __init__(self, tables: Tensor, contexts: Tensor, lengths: Sequence[int] | int) -> None:
        """tables: (B, max_blocks) int32, any strides. contexts: (B,) int32.

        lengths: the contents of contexts; or, if these will change, their upper bounds.
        """
        self.tables = tables
        self.contexts = contexts
        self._lengths = lengths
        self._programs = _PROGRAMS_PER_CORE * _cores(tables.device)
        self._splittings: dict[tuple[int, int | None], Splitting] = {}

    def splitting(self, num_kv_heads: int, window: int | None) -> Splitting:
        """For layers with as many heads and this window."""
        known = self._splittings.get((num_kv_heads, window))
        if known is None:
            known = self._split(num_kv_heads, window)
            self._splittings[num_kv_heads, window] = known
        return known

    def _split(self, num_kv_heads: int, window: int | None) -> Splitting:
        rows = self.contexts.shape[0]
        if isinstance(self._lengths, int):
            longest = min(self._lengths, window or self._lengths)
            total = max(1, longest * rows // _SKEW)
        else:
            seen = [min(length, window or length) for length in self._lengths]
            longest, total = max(seen), sum(seen)
        # Enough that no program has more than its fair share of the step's keys.
        fair = max(_FEWEST_KEYS, total * num_kv_heads // self._programs)
        most = min(_MOST_SPLITS, _MOST_WAVES * self._programs // (rows * num_kv_heads))
        splits = max(1, min(most, -(-longest // fair)))
        filling = max(1, self._programs // (rows * num_kv_heads))
        return Splitting(splits, filling, _FEWEST_KEYS, _MOST_KEYS)


def step_plan(batch: StepBatch) -> tuple[DecodePlan | None, PrefillTiles | None]:
    """Both parts of a step; None for a missing one. One copy to the device."""
    decodes, spans = batch.decodes, batch.spans
    tiles = [
        (number, first)
        for number, span in enumerate(spans)
        for first in range(0, span.end - span.begin, PREFILL_TILE)
    ]
    parts = [
        _padded([row.block_table for row in decodes]),
        np.array([row.context for row in decodes], np.int32),
        _padded([span.block_table for span in spans]),
        np.array([(span.begin, span.end - span.begin, span.start) for span in spans], np.int32),
        np.array(tiles, np.int32),
    ]
    tables, contexts, span_tables, span_rows, tile_rows = _moved(parts, batch.device)
    decode = None
    if decodes:
        decode = DecodePlan(tables, contexts, [row.context for row in decodes])
    return decode, PrefillTiles(span_tables, span_rows, tile_rows) if spans else None


def _padded(tables: list[list[int]]) -> _Ints:
    """(rows, longest), zeros after each row's own blocks."""
    padded = np.zeros((len(tables), max(map(len, tables), default=0)), np.int32)
    for row, table in enumerate(tables):
        padded[row, : len(table)] = table
    return padded


def _moved(parts: list[_Ints], device: torch.device) -> list[Tensor]:
    """The same arrays on the device, views of one tensor."""
    flat = torch.from_numpy(np.concatenate([part.ravel() for part in parts]))
    if device.type == "cuda":
        flat = flat.pin_memory().to(device, non_blocking=True)
    sections = flat.split([part.size for part in parts])
    return [section.view(part.shape) for section, part in zip(sections, parts, strict=True)]


def _cores(device: torch.device) -> int:
    """Multiprocessors of a GPU; a few for a CPU, where only the interpreter runs kernels."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count
