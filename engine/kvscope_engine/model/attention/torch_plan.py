"""The torch backend's gathers and masks of one step; built at first use of each layer window.

Decode rows of about the same length attend together, each prefill span by itself.
"""

from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kvscope_engine.model.step_batch import PrefillSpan, StepBatch

PADDED_ELEMENTS = 1 << 16
"""K elements a decode group may read needlessly before another group is cheaper; about 40 µs."""
CPU_GROUP_ELEMENTS = 1 << 19
"""K elements a decode group gathers at most on a CPU: they stay in its caches until they are used.

At 128 sequences of 1,024 tokens one group of all takes four times as long.
"""


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Decode rows [begin, end) that attend together, over equally many blocks each."""

    begin: int
    end: int
    blocks: Tensor
    """(rows * width,) int64 block ids; short rows are padded with their last block."""
    mask: Tensor
    """(rows, 1, 1, width * block_size), added to the scores: 0 or -inf."""


class _VisibleRow(NamedTuple):
    """The blocks that one decode row sees, and its keys [low, high) counted from the first."""

    blocks: list[int]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    """The keys that one span attends to."""

    begin: int
    end: int
    blocks: Tensor | None
    """(n,) int64, blocks to gather; None: the span needs only its own fresh K and V.

    Quantized ones are gathered in any case: output must not depend on how a prompt is split.
    """
    num_keys: int
    """Leading gathered tokens that are written."""
    mask: Tensor | None
    """(1, 1, end - begin, num_keys), added to the scores; None: plainly causal."""


class TorchPlan:
    """The groups and plans of one batch, by sliding window; layers of one window share them."""

    def __init__(self, batch: StepBatch) -> None:
        self._batch = batch
        self._layout = batch.layout
        self._device = batch.device
        self._decode_groups: dict[int | None, list[DecodeGroup]] = {}
        self._prefill_plans: dict[int | None, list[PrefillPlan]] = {}

    def decode_groups(self, window: int | None) -> list[DecodeGroup]:
        """Groups that cover the decode rows in order. window: keys that a token sees, or None."""
        window = self._effective(window)
        groups = self._decode_groups.get(window)
        if groups is None:
            groups = self._decode_groups[window] = self._group_decodes(window)
        return groups

    def prefill_plans(self, window: int | None) -> list[PrefillPlan]:
        """One plan per span, in order. window: keys that a token sees, itself included."""
        window = self._effective(window)
        plans = self._prefill_plans.get(window)
        if plans is None:
            plans = [self._plan_prefill(span, window) for span in self._batch.spans]
            self._prefill_plans[window] = plans
        return plans

    def _effective(self, window: int | None) -> int | None:
        return None if window is None or window >= self._batch.longest_context else window

    def _group_decodes(self, window: int | None) -> list[DecodeGroup]:
        rows = [
            self._visible_row(row.block_table, row.context, window) for row in self._batch.decodes
        ]
        groups: list[DecodeGroup] = []
        begin = 0
        while begin < len(rows):
            end = self._group_end(rows, begin)
            groups.append(self._group(rows, begin, end))
            begin = end
        return groups

    def _visible_row(self, table: list[int], context: int, window: int | None) -> _VisibleRow:
        block_size = self._layout.block_size
        low = 0 if window is None else max(0, context - window)
        first = low // block_size
        shift = first * block_size
        return _VisibleRow(table[first : -(-context // block_size)], low - shift, context - shift)

    def _group_end(self, rows: list[_VisibleRow], begin: int) -> int:
        """The end of a group from `begin`: before too much padding, or when the CPU's caches are
        full."""
        shape = self._layout.layers[0]
        block_elements = self._layout.block_size * shape.num_kv_heads * shape.head_dim
        width = len(rows[begin].blocks)
        end = len(rows)
        if self._device.type == "cpu":
            end = min(end, begin + max(1, CPU_GROUP_ELEMENTS // (block_elements * width)))
        padding = 0
        for index in range(begin, end):
            padding += abs(width - len(rows[index].blocks))
            if padding * block_elements > PADDED_ELEMENTS:
                return index
        return end

    def _group(self, rows: list[_VisibleRow], begin: int, end: int) -> DecodeGroup:
        rows = rows[begin:end]
        width = max(len(row.blocks) for row in rows)
        padded = (row.blocks + row.blocks[-1:] * (width - len(row.blocks)) for row in rows)
        blocks = np.fromiter(chain.from_iterable(padded), np.int64, count=len(rows) * width)
        low, high = torch.tensor(
            [[row.low for row in rows], [row.high for row in rows]], device=self._device
        )
        key = torch.arange(width * self._layout.block_size, device=self._device)
        hidden = (key < low[:, None]) | (key >= high[:, None])
        return DecodeGroup(
            begin,
            end,
            torch.from_numpy(blocks).to(self._device),
            self._additive(hidden)[:, None, None, :],
        )

    def _plan_prefill(self, span: PrefillSpan, window: int | None) -> PrefillPlan:
        block_size = self._layout.block_size
        count = span.end - span.begin
        end = span.start + count
        if span.start == 0 and not self._layout.quantized:
            blocks, first_key = None, 0
        else:
            low = 0 if window is None else max(0, span.start + 1 - window)
            first_block = low // block_size
            first_key = first_block * block_size
            table = span.block_table[first_block : -(-end // block_size)]
            blocks = torch.tensor(table, device=self._device)
        num_keys = end - first_key
        mask = None
        if span.start > 0 or (window is not None and window < count):
            query = torch.arange(span.start, end, device=self._device)[:, None]
            key = torch.arange(first_key, end, device=self._device)
            hidden = key > query
            if window is not None:
                hidden |= key <= query - window
            mask = self._additive(hidden)[None, None]
        return PrefillPlan(span.begin, span.end, blocks, num_keys, mask)

    def _additive(self, hidden: Tensor) -> Tensor:
        mask = torch.zeros(hidden.shape, dtype=self._layout.compute_dtype, device=self._device)
        return mask.masked_fill_(hidden, float("-inf"))
