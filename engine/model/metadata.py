"""One step's batch, flattened: token ids, positions, slots, and which blocks each row reads.

Decode rows (one token) come first, longest context first, then the other rows one by one:

    tokens   [d0 d1 d2 … | p0 p0 p0 p0 | p1 p1 p1 …]     T in all, no padding
              └ grouped ┘  └ one span ┘

Built once per step; what depends on a layer's window is built at its first use and kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.model.kv_cache import KVLayout
from engine.request import ScheduledSequence

PADDED_ELEMENTS = 1 << 16
"""K elements a decode group may read in vain before another group is cheaper; about 40 µs."""
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


class _DecodeRow(NamedTuple):
    """The blocks that one decode row sees, and its keys [low, high) counted from the first."""

    blocks: list[int]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class PrefillSpan:
    """Tokens [begin, end) of the flattened batch, one sequence, from position `start` on."""

    begin: int
    end: int
    start: int
    block_table: list[int]


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    """What one span attends to."""

    begin: int
    end: int
    blocks: Tensor | None
    """(n,) int64, what to gather; None: the span's own fresh K and V are all there is."""
    num_keys: int
    """Leading gathered tokens that are written."""
    mask: Tensor | None
    """(1, 1, end - begin, num_keys), added to the scores; None: plainly causal."""


class StepBatch:
    """The flattened batch of one step.

    token_ids, positions, slots: (T,) int64 on `device`. sample_positions: (S,) int64, the index
    in the flattened batch of the last token of every row that samples, in the rows' order.
    opened: blocks that get their first tokens and stay in part unwritten. Those slots are read, and
    hidden by a mask; but NaN or infinity of an earlier owner would pass through it.
    """

    def __init__(
        self, rows: Sequence[ScheduledSequence], layout: KVLayout, device: torch.device
    ) -> None:
        assert rows, "a step without rows has nothing to compute"
        block_size = layout.block_size
        decodes = [index for index, row in enumerate(rows) if row.count == 1]
        decodes.sort(key=lambda index: -rows[index].start)
        others = [index for index, row in enumerate(rows) if row.count > 1]
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        last_token = [0] * len(rows)
        self.opened: list[int] = []
        self.spans: list[PrefillSpan] = []
        for index in chain(decodes, others):
            row = rows[index]
            start, end, table = row.start, row.start + row.count, row.request.block_table
            begin = len(token_ids)
            token_ids += row.request.tokens[start:end]
            positions += range(start, end)
            slots += [
                table[position // block_size] * block_size + position % block_size
                for position in range(start, end)
            ]
            last_token[index] = len(token_ids) - 1
            if start <= end - end % block_size < end:
                self.opened.append(table[end // block_size])
            if row.count > 1:
                self.spans.append(PrefillSpan(begin, len(token_ids), start, table))

        self.device = device
        self.layout = layout
        self.num_decodes = len(decodes)
        self.token_ids = torch.tensor(token_ids, device=device)
        self.positions = torch.tensor(positions, device=device)
        self.slots = torch.tensor(slots, device=device)
        self.sample_positions = torch.tensor(
            [last_token[index] for index, row in enumerate(rows) if row.samples],
            dtype=torch.int64,
            device=device,
        )
        self._decode_tables = [rows[index].request.block_table for index in decodes]
        self._contexts = [rows[index].start + 1 for index in decodes]
        self._longest_context = max(positions, default=0) + 1
        self._decode_groups: dict[int | None, list[DecodeGroup]] = {}
        self._prefill_plans: dict[int | None, list[PrefillPlan]] = {}

    def decode_groups(self, window: int | None) -> list[DecodeGroup]:
        """Groups that cover the decode rows in order. window: keys visible, itself included."""
        window = self._effective(window)
        groups = self._decode_groups.get(window)
        if groups is None:
            groups = self._decode_groups[window] = self._group_decodes(window)
        return groups

    def prefill_plans(self, window: int | None) -> list[PrefillPlan]:
        """One plan per span, in order. window: keys visible to a token, itself included."""
        window = self._effective(window)
        plans = self._prefill_plans.get(window)
        if plans is None:
            plans = [self._plan_prefill(span, window) for span in self.spans]
            self._prefill_plans[window] = plans
        return plans

    def _effective(self, window: int | None) -> int | None:
        return None if window is None or window >= self._longest_context else window

    def _group_decodes(self, window: int | None) -> list[DecodeGroup]:
        rows = [
            self._decode_row(table, context, window)
            for table, context in zip(self._decode_tables, self._contexts, strict=True)
        ]
        groups: list[DecodeGroup] = []
        begin = 0
        while begin < len(rows):
            end = self._group_end(rows, begin)
            groups.append(self._group(rows, begin, end))
            begin = end
        return groups

    def _decode_row(self, table: list[int], context: int, window: int | None) -> _DecodeRow:
        block_size = self.layout.block_size
        low = 0 if window is None else max(0, context - window)
        first = low // block_size
        shift = first * block_size
        return _DecodeRow(table[first : -(-context // block_size)], low - shift, context - shift)

    def _group_end(self, rows: list[_DecodeRow], begin: int) -> int:
        """Where a group from `begin` on has too much padding, or fills the CPU's caches."""
        shape = self.layout.layers[0]
        block_elements = self.layout.block_size * shape.num_kv_heads * shape.head_dim
        width = len(rows[begin].blocks)
        end = len(rows)
        if self.device.type == "cpu":
            end = min(end, begin + max(1, CPU_GROUP_ELEMENTS // (block_elements * width)))
        padding = 0
        for index in range(begin, end):
            padding += abs(width - len(rows[index].blocks))
            if padding * block_elements > PADDED_ELEMENTS:
                return index
        return end

    def _group(self, rows: list[_DecodeRow], begin: int, end: int) -> DecodeGroup:
        rows = rows[begin:end]
        width = max(len(row.blocks) for row in rows)
        padded = (row.blocks + row.blocks[-1:] * (width - len(row.blocks)) for row in rows)
        blocks = np.fromiter(chain.from_iterable(padded), np.int64, count=len(rows) * width)
        low, high = torch.tensor(
            [[row.low for row in rows], [row.high for row in rows]], device=self.device
        )
        key = torch.arange(width * self.layout.block_size, device=self.device)
        hidden = (key < low[:, None]) | (key >= high[:, None])
        return DecodeGroup(
            begin,
            end,
            torch.from_numpy(blocks).to(self.device),
            self._additive(hidden)[:, None, None, :],
        )

    def _plan_prefill(self, span: PrefillSpan, window: int | None) -> PrefillPlan:
        block_size = self.layout.block_size
        count = span.end - span.begin
        end = span.start + count
        if span.start == 0:
            blocks, first_key = None, 0
        else:
            low = 0 if window is None else max(0, span.start + 1 - window)
            first_block = low // block_size
            first_key = first_block * block_size
            table = span.block_table[first_block : -(-end // block_size)]
            blocks = torch.tensor(table, device=self.device)
        num_keys = end - first_key
        mask = None
        if span.start > 0 or (window is not None and window < count):
            query = torch.arange(span.start, end, device=self.device)[:, None]
            key = torch.arange(first_key, end, device=self.device)
            hidden = key > query
            if window is not None:
                hidden |= key <= query - window
            mask = self._additive(hidden)[None, None]
        return PrefillPlan(span.begin, span.end, blocks, num_keys, mask)

    def _additive(self, hidden: Tensor) -> Tensor:
        mask = torch.zeros(hidden.shape, dtype=self.layout.dtype, device=self.device)
        return mask.masked_fill_(hidden, float("-inf"))
