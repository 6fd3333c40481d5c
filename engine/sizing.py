"""How many blocks the pool gets, and whether that is enough. No torch: plain arithmetic."""

import logging
from pathlib import Path

from engine.config import CacheConfig, SchedulerConfig

CPU_MEMORY_SHARE = 0.25
"""Of the memory free at start; the system, activations and others need the rest."""

logger = logging.getLogger(__name__)


class PoolSizeError(Exception):
    """The pool cannot be built, or could not hold one sequence; the text has the numbers."""


def pool_blocks(
    cache: CacheConfig, scheduler: SchedulerConfig, bytes_per_block: int, device: str
) -> int:
    """Blocks for the pool: as told, or on a CPU a quarter of the free memory if that is of use.

    Raises PoolSizeError if one sequence of max_model_len tokens would not fit.
    """
    needed = -(-scheduler.max_model_len // cache.block_size)
    if cache.num_gpu_blocks_override is not None:
        blocks = cache.num_gpu_blocks_override
        rule = "--num-gpu-blocks-override"
    elif cache.kv_cache_memory_bytes is not None:
        blocks = cache.kv_cache_memory_bytes // bytes_per_block
        rule = f"--kv-cache-memory-bytes {cache.kv_cache_memory_bytes}"
    elif device == "cpu":
        free = _free_memory_bytes()
        useful = scheduler.max_num_seqs * needed
        blocks = min(int(free * CPU_MEMORY_SHARE) // bytes_per_block, useful)
        rule = f"{CPU_MEMORY_SHARE:.0%} of {free / 2**30:.1f} GiB free, at most {useful} of use"
    else:
        raise PoolSizeError(
            f"on {device} the pool's size must be given: "
            "set --kv-cache-memory-bytes or --num-gpu-blocks-override"
        )
    if device == "cpu" and blocks * bytes_per_block > _free_memory_bytes():
        raise PoolSizeError(
            f"a pool of {blocks} blocks ({rule}; {bytes_per_block} bytes each) takes "
            f"{blocks * bytes_per_block / 2**30:.1f} GiB, but {_free_memory_bytes() / 2**30:.1f} "
            "GiB are free: give it less"
        )
    if blocks < needed:
        raise PoolSizeError(
            f"a pool of {blocks} blocks ({rule}; {bytes_per_block} bytes each) holds "
            f"{blocks * cache.block_size} tokens, but one sequence of max_model_len "
            f"{scheduler.max_model_len} needs {needed} blocks: give the pool "
            f"{needed * bytes_per_block} bytes or lower --max-model-len"
        )
    logger.info(
        "KV pool: %d blocks of %d tokens, %.1f MiB (%s); %.1f sequences of %d tokens",
        blocks,
        cache.block_size,
        blocks * bytes_per_block / 2**20,
        rule,
        blocks / needed,
        scheduler.max_model_len,
    )
    return blocks


def _free_memory_bytes() -> int:
    """What the kernel says can be taken without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise PoolSizeError("/proc/meminfo names no MemAvailable: set --kv-cache-memory-bytes")
