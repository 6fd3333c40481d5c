"""Inputs of a decode step of fixed size, at fixed addresses: unused rows are padding.

    int32, on the device and in pinned memory of the host, transferred in one copy:

    row 0    token ids                    (B,)
    row 1    positions
    row 2    slots
    row 3    contexts
    row 4…   block tables, transposed     (max_blocks, B)

Only the tables' leading rows that a step needs are copied. Padding rows write to and read from a
scratch block of their own, which no sequence ever has.
"""

import numpy as np
import torch
from torch import Tensor

from kvscope_engine.step_plan import ScheduledSequence

_HEAD = 4
"""Rows above the tables."""


class DecodeBuffers:
    """Room for the largest batch; smaller ones use its front, one at a time."""

    def __init__(
        self, *, max_rows: int, max_blocks: int, block_size: int, scratch: int, device: torch.device
    ) -> None:
        """scratch: id of the block for padding rows. Takes max_rows * (max_blocks + 4) int32."""
        self.max_blocks = max_blocks
        self.block_size = block_size
        self.scratch = scratch
        size = max_rows * (_HEAD + max_blocks)
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        self._host = torch.zeros(size, dtype=torch.int32, pin_memory=device.type == "cuda")

    def rows(self, count: int) -> "DecodeInputs":
        """The view of `count` rows."""
        shape = (_HEAD + self.max_blocks, count)
        size = shape[0] * count
        return DecodeInputs(self, self._host[:size].view(shape), self._device[:size].view(shape))


class DecodeInputs:
    """The inputs of steps of one size. The tensors on the device stay where they are."""

    def __init__(self, buffers: DecodeBuffers, host: Tensor, device: Tensor) -> None:
        self.num_rows = host.shape[1]
        self._buffers = buffers
        self._host = host
        self._staged = host.numpy()
        self._device = device
        self.contexts = device[3]
        """(B,) int32."""
        self.tables = device[_HEAD:].T
        """(B, max_blocks) int32, strides (1, B)."""

    def token_ids(self) -> Tensor:
        """(B,) int64, a copy: part of the step. So are positions and slots."""
        return self._device[0].long()

    def positions(self) -> Tensor:
        return self._device[1].long()

    def slots(self) -> Tensor:
        return self._device[2].long()

    def fill(self, rows: list[ScheduledSequence]) -> None:
        """Fill in the next step's one-token rows, in order, with padding behind them.

        The step before must have ended: its host copy is overwritten.
        """
        staged, block_size = self._staged, self._buffers.block_size
        used = 1
        for column, row in enumerate(rows):
            assert row.count == 1, "a decode step has one token a row"
            position, table = row.start, row.sequence.block_table
            blocks = position // block_size + 1
            slot = table[position // block_size] * block_size + position % block_size
            token_id = row.sequence.tokens[position]
            staged[:_HEAD, column] = (token_id, position, slot, position + 1)
            staged[_HEAD : _HEAD + blocks, column] = table[:blocks]
            used = max(used, blocks)
        scratch = self._buffers.scratch
        padding = slice(len(rows), self.num_rows)
        staged[:_HEAD, padding] = np.array([[0], [0], [scratch * block_size], [1]], np.int32)
        staged[_HEAD, padding] = scratch
        end = _HEAD + used
        self._device[:end].copy_(self._host[:end], non_blocking=True)
