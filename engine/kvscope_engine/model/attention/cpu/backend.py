"""Paged attention on a CPU: decode rows through a kernel that reads the blocks in place."""

from itertools import accumulate, chain

import numpy as np
import torch
from torch import Tensor

from kvscope_engine.model.attention.backend import LayerOptions
from kvscope_engine.model.attention.cpu.kernel import DecodeKernel, DecodeRows, decode_kernel
from kvscope_engine.model.attention.torch_backend import TorchAttention
from kvscope_engine.model.kv_cache import KVCache
from kvscope_engine.model.step_batch import DecodeRow, StepBatch


class CpuAttention(TorchAttention):
    """An `AttentionBackend`: plain torch handles prompts, types other than float32 (also of K and
    V), and machines on which the kernel does not compile.
    """

    def __init__(self, batch: StepBatch, cache: KVCache) -> None:
        super().__init__(batch, cache)
        self._blocks = cache.blocks
        self._decodes = batch.decodes
        self._rows: DecodeRows | None = None

    def decode(self, query: Tensor, options: LayerOptions) -> list[Tensor]:
        """See `TorchAttention`."""
        keys, values = self._blocks[options.layer]
        kernel = _kernel(query, keys)
        if kernel is None:
            return super().decode(query, options)
        if self._rows is None:
            self._rows = _flattened(self._decodes, *keys.shape[:2])
        return [kernel(query, keys, values, self._rows, options)]


def _kernel(query: Tensor, keys: Tensor) -> DecodeKernel | None:
    if {query.dtype, keys.dtype} != {torch.float32} or query.stride(3) != 1:
        return None
    return decode_kernel(query.shape[3], query.shape[1] // keys.shape[2])


def _flattened(rows: list[DecodeRow], num_blocks: int, block_size: int) -> DecodeRows:
    """The kernel reads wherever these point: they must stay within the cache."""
    tables = [row.block_table for row in rows]
    lengths = [len(table) for table in tables]
    blocks = np.fromiter(chain.from_iterable(tables), np.int64, count=sum(lengths))
    assert all(len(row.block_table) * block_size >= row.context for row in rows)
    assert blocks.min() >= 0
    assert blocks.max() < num_blocks
    return DecodeRows(
        torch.from_numpy(blocks),
        torch.tensor([0, *accumulate(lengths[:-1])]),
        torch.tensor([row.context for row in rows]),
    )
