"""One step's batch, flattened: token ids, positions, slots, and which blocks each row reads.

Decode rows (one token) come first, longest context first, then the other rows one by one:

    tokens   [d0 d1 d2 … | p0 p0 p0 p0 | p1 p1 p1 …]     T in all, no padding
              └ decodes ┘ └ one span ┘

Built once per step and the same for every attention backend.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from kvscope_engine.model.kv_cache import KVLayout
from kvscope_engine.step_plan import ScheduledSequence


class ForwardBatch(Protocol):
    """The part of a batch that a forward pass reads: see `StepBatch`."""

    @property
    def token_ids(self) -> Tensor: ...
    @property
    def positions(self) -> Tensor: ...
    @property
    def slots(self) -> Tensor: ...
    @property
    def logit_positions(self) -> Tensor: ...
    @property
    def opened(self) -> Sequence[int]: ...


class DecodeRow(NamedTuple):
    """One token that attends to itself and all earlier ones."""

    block_table: list[int]
    context: int
    """Tokens that it sees, itself included."""


@dataclass(frozen=True, slots=True)
class PrefillSpan:
    """Tokens [begin, end) of the flattened batch, one sequence, from position `start` on."""

    begin: int
    end: int
    start: int
    block_table: list[int]


class StepBatch:
    """The flattened batch of one step.

    token_ids, positions, slots: (T,) int64 on `device`. logit_positions: (S,) int64, where in the
    flattened batch logits are wanted: at the last token of the S rows that sample, in the rows'
    order. decodes, spans: the rows of one token, and the others, in the order of the flattened
    batch. opened: blocks that get their first tokens and stay partially unwritten. Those slots are
    read and hidden by a mask, but an earlier owner's NaN or infinity would pass through it.
    """

    def __init__(
        self, rows: list[ScheduledSequence], layout: KVLayout, device: torch.device
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
            start, end, table = row.start, row.start + row.count, row.sequence.block_table
            begin = len(token_ids)
            token_ids += row.sequence.tokens[start:end]
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
        self.decodes = [
            DecodeRow(rows[index].sequence.block_table, rows[index].start + 1) for index in decodes
        ]
        self.token_ids = torch.tensor(token_ids, device=device)
        self.positions = torch.tensor(positions, device=device)
        self.slots = torch.tensor(slots, device=device)
        sampling = [last_token[index] for index, row in enumerate(rows) if row.samples]
        self.logit_positions = torch.tensor(sampling, dtype=torch.int64, device=device)
        self.longest_context = max(positions) + 1
