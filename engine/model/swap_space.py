"""KV of swapped-out sequences in the host's memory: its tensors, and the copies out and back.

A block's content is contiguous on the host, block after block, so that blocks with consecutive ids
are one copy. On CUDA the memory is pinned, and blocks are gathered on the device in a buffer of a
fixed size: a preemption, which happens when memory is short, allocates nothing on the device.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.model.kv_cache import KVCache

STAGING_BYTES = 32 * 2**20
"""Bytes of the buffer on a CUDA device: some milliseconds of copying, far more than its overhead.
"""


class SwapSpace:
    """A `HostMover` over the tensors of one cache. One thread.

    Copies on CUDA run on a stream of their own: it waits for all previous steps, and the call,
    hence the next step, waits for it.
    """

    def __init__(self, cache: KVCache, num_blocks: int) -> None:
        """Allocates num_blocks * bytes_per_block on the host, on CUDA at once and pinned.

        Raises RuntimeError if the host cannot provide it.
        """
        self.num_blocks = num_blocks
        self._device = cache.device
        is_cuda = cache.device.type == "cuda"
        # By block on both sides: views (blocks, layers, 2, block_size, H_kv, D) of the stacks.
        self._pools = [stack.movedim(2, 0) for stack in cache.stacks]
        self._hosts = [
            torch.empty((num_blocks, *pool.shape[1:]), dtype=pool.dtype, pin_memory=is_cuda)
            for pool in self._pools
        ]
        self._stream = _stream(cache.device) if is_cuda else None
        self._staging: list[Tensor] = []
        if is_cuda:
            at_once = max(1, STAGING_BYTES // cache.layout.bytes_per_block)
            self._staging = [pool.new_empty((at_once, *pool.shape[1:])) for pool in self._pools]
            self._index = torch.empty(at_once, dtype=torch.int64, device=cache.device)

    def swap_out(self, blocks: Sequence[int], host_blocks: Sequence[int]) -> None:
        """Copy blocks of the cache to blocks of the host; returns when they are there."""
        if self._stream is None:
            index = torch.tensor(blocks)
            for begin, end, first in _runs(host_blocks):
                for pool, host in zip(self._pools, self._hosts, strict=True):
                    target = host[first : first + end - begin]
                    torch.index_select(pool, 0, index[begin:end], out=target)
            return
        with torch.cuda.stream(self._after_steps()):
            for start in range(0, len(blocks), len(self._staging[0])):
                part = self._indices(blocks[start : start + len(self._staging[0])])
                for pool, host, staging in zip(
                    self._pools, self._hosts, self._staging, strict=True
                ):
                    gathered = staging[: len(part)]
                    torch.index_select(pool, 0, part, out=gathered)
                    for begin, end, first in _runs(host_blocks[start : start + len(part)]):
                        target = host[first : first + end - begin]
                        target.copy_(gathered[begin:end], non_blocking=True)
        self._stream.synchronize()

    def swap_in(self, host_blocks: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy blocks of the host to blocks of the cache; returns when they are there."""
        if self._stream is None:
            for pool, host in zip(self._pools, self._hosts, strict=True):
                for block, host_block in zip(blocks, host_blocks, strict=True):
                    pool[block].copy_(host[host_block])  # index_copy_ has half its bandwidth
            return
        with torch.cuda.stream(self._after_steps()):
            for start in range(0, len(blocks), len(self._staging[0])):
                part = self._indices(blocks[start : start + len(self._staging[0])])
                for pool, host, staging in zip(
                    self._pools, self._hosts, self._staging, strict=True
                ):
                    for begin, end, first in _runs(host_blocks[start : start + len(part)]):
                        source = host[first : first + end - begin]
                        staging[begin:end].copy_(source, non_blocking=True)
                    pool.index_copy_(0, part, staging[: len(part)])
        self._stream.synchronize()

    def _indices(self, blocks: Sequence[int]) -> Tensor:
        """On the device, until the next call; in the order of the current stream."""
        return self._index[: len(blocks)].copy_(torch.tensor(blocks))

    def _after_steps(self) -> torch.cuda.Stream:
        """The stream of the copies, behind all that was computed so far."""
        assert self._stream is not None
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return self._stream


def _stream(device: torch.device) -> torch.cuda.Stream:
    make: Any = torch.cuda.Stream  # untyped
    stream: torch.cuda.Stream = make(device)
    return stream


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Maximal runs of consecutive ids: begin and end in the list, and the first id."""
    begin = 0
    for position in range(1, len(ids) + 1):
        if position == len(ids) or ids[position] != ids[position - 1] + 1:
            yield begin, position, ids[begin]
            begin = position
