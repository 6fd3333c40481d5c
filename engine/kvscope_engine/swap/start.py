"""From --preemption-mode and --swap-space to a swap manager whose copies have been measured."""

import logging
import time
from collections.abc import Callable

from kvscope_engine.block_mover import HostMover
from kvscope_engine.block_pool import BlockPool
from kvscope_engine.config import SwapConfig
from kvscope_engine.model.kv_cache import KVCache
from kvscope_engine.model.swap_space import SwapSpace
from kvscope_engine.model.torch_errors import device_out_of_memory
from kvscope_engine.out_of_memory import DeviceOutOfMemoryError
from kvscope_engine.sizing import MainMemory, PoolSizeError
from kvscope_engine.sizing.units import format_bytes
from kvscope_engine.swap.chooser import Chooser
from kvscope_engine.swap.host_pool import HostPool
from kvscope_engine.swap.manager import SwapManager
from kvscope_events.bus import Bus
from kvscope_events.vocabulary import SwapDirection

logger = logging.getLogger(__name__)

PROBE_BLOCKS = 8
"""Blocks that the probe copies out and back, twice; only the second time counts."""


def num_swap_blocks(
    config: SwapConfig, bytes_per_block: int, memory: MainMemory, pool_bytes: int
) -> int:
    """Blocks of the swap pool; 0: nothing is swapped.

    pool_bytes: bytes that the pool is about to take of the same memory. Raises PoolSizeError if the
    space does not hold one block, or if the host does not have it.
    """
    space = config.space_bytes
    if not space:
        return 0
    if space < bytes_per_block:
        raise PoolSizeError(
            f"--swap-space of {format_bytes(space)} holds no block of "
            f"{format_bytes(bytes_per_block)}"
        )
    free = max(0, memory.free() - pool_bytes)
    if space > free:
        raise PoolSizeError(
            f"--swap-space of {format_bytes(space)}: the host has {format_bytes(free)} for it; "
            "make it smaller"
        )
    return space // bytes_per_block


def swap_space(cache: KVCache, num_blocks: int) -> SwapSpace:
    """Allocate the host's memory. Raises PoolSizeError if it is not available after all."""
    try:
        with device_out_of_memory():
            return SwapSpace(cache, num_blocks)
    except DeviceOutOfMemoryError:
        wanted = format_bytes(num_blocks * cache.layout.bytes_per_block)
        raise PoolSizeError(
            f"no host memory for a swap space of {wanted}: make --swap-space smaller"
        ) from None


def swap_manager(config: SwapConfig, pool: BlockPool, space: SwapSpace, bus: Bus) -> SwapManager:
    """The manager of a pool in which nothing runs yet."""
    chooser = None
    if config.mode == "auto":
        chooser = Chooser(pool.block_size)
        _probe(space, chooser, min(PROBE_BLOCKS, pool.num_blocks, space.num_blocks))
    size = format_bytes(space.num_blocks * pool.bytes_per_block)
    logger.info("swap space of %s, %d blocks on the host", size, space.num_blocks)
    return SwapManager(pool, HostPool(space.num_blocks), space, bus, chooser)


def _probe(mover: HostMover, chooser: Chooser, count: int) -> None:
    """Copy the first blocks, which are empty, out and back."""
    blocks = list(range(count))
    copies: dict[SwapDirection, Callable[[], None]] = {
        "out": lambda: mover.swap_out(blocks, blocks),
        "in": lambda: mover.swap_in(blocks, blocks),
    }
    for direction, copy in copies.items():
        copy()  # the first touch of the memory is not representative
        start_ns = time.monotonic_ns()
        copy()
        chooser.copied(direction, count, time.monotonic_ns() - start_ns)
