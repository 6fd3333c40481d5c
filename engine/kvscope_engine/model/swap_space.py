"""KV of swapped-out sequences in the host's memory: its tensors, and the copies out and back.

A block's content is contiguous on the host, block after block, so that blocks with consecutive ids
are one copy. On CUDA the memory is pinned, and blocks are gathered on the device in buffers of a
fixed size: a preemption, which happens when memory is short, allocates nothing on the device.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kvscope_engine.model.kv_cache import KVCache

STAGING_BYTES = 32 * 2**20
"""Bytes of the buffers on a CUDA device: half of them, a chunk, take tenths of a millisecond to
copy, far more than its overhead.
"""


class _Lane(NamedTuple):
    """A stream and the buffers that only it uses, one for each pool.

    The stream's own order keeps them: it writes a chunk there after it has read the one before.
    """

    stream: torch.cuda.Stream
    staging: list[Tensor]


class SwapSpace:
    """A `HostMover` over the tensors of one cache. One thread.

    On CUDA chunks take turns on two streams, so that one is gathered or scattered on the device
    while the other crosses the bus. Both wait for all previous steps, and the call, hence the next
    step, waits for both.
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
        self._lanes: list[_Lane] = []
        if is_cuda:
            at_once = max(1, STAGING_BYTES // 2 // cache.layout.bytes_per_block)
            self._lanes = [
                _Lane(
                    _stream(cache.device),
                    [pool.new_empty((at_once, *pool.shape[1:])) for pool in self._pools],
                )
                for _ in range(2)
            ]
            # No call names more: its targets, of the host or of the cache, are distinct.
            most = max(num_blocks, cache.num_blocks)
            self._index = torch.empty(most, dtype=torch.int64, device=cache.device)

    def swap_out(self, blocks: Sequence[int], host_blocks: Sequence[int]) -> None:
        """Copy blocks of the cache to blocks of the host; returns when they are there."""
        if not self._lanes:
            index = torch.tensor(blocks)
            for begin, end, first in _runs(host_blocks):
                for pool, host in zip(self._pools, self._hosts, strict=True):
                    target = host[first : first + end - begin]
                    torch.index_select(pool, 0, index[begin:end], out=target)
            return
        for lane, start, stop, index in self._chunks(blocks):
            with torch.cuda.stream(lane.stream):
                for pool, host, staging in zip(self._pools, self._hosts, lane.staging, strict=True):
                    gathered = staging[: stop - start]
                    torch.index_select(pool, 0, index, out=gathered)
                    for begin, end, first in _runs(host_blocks[start:stop]):
                        target = host[first : first + end - begin]
                        target.copy_(gathered[begin:end], non_blocking=True)
        self._wait()

    def swap_in(self, host_blocks: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy blocks of the host to blocks of the cache; returns when they are there."""
        if not self._lanes:
            for pool, host in zip(self._pools, self._hosts, strict=True):
                for block, host_block in zip(blocks, host_blocks, strict=True):
                    pool[block].copy_(host[host_block])  # index_copy_ has half its bandwidth
            return
        for lane, start, stop, index in self._chunks(blocks):
            with torch.cuda.stream(lane.stream):
                for pool, host, staging in zip(self._pools, self._hosts, lane.staging, strict=True):
                    for begin, end, first in _runs(host_blocks[start:stop]):
                        source = host[first : first + end - begin]
                        staging[begin:end].copy_(source, non_blocking=True)
                    pool.index_copy_(0, index, staging[: stop - start])
        self._wait()

    def _chunks(self, blocks: Sequence[int]) -> Iterator[tuple[_Lane, int, int, Tensor]]:
        """The chunks of a call, on the lanes in turn: begin and end in the list, ids on the device.

        The ids are copied once, behind the steps that both streams wait for, hence before either
        reads them; a copy for each chunk would have to wait for the chunk before. The call before
        has waited for both streams, so that none still reads the ids that are overwritten.
        """
        index = self._index[: len(blocks)].copy_(torch.tensor(blocks))
        steps = torch.cuda.current_stream(self._device)
        for lane in self._lanes:
            lane.stream.wait_stream(steps)
        at_once = len(self._lanes[0].staging[0])
        for number, start in enumerate(range(0, len(blocks), at_once)):
            stop = min(start + at_once, len(blocks))
            yield self._lanes[number % 2], start, stop, index[start:stop]

    def _wait(self) -> None:
        for lane in self._lanes:
            lane.stream.synchronize()


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
