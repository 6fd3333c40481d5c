"""The pool's size: as configured, or refused with the numbers."""

from typing import Any

import pytest

from kvscope_engine.config import CacheConfig, SchedulerConfig
from kvscope_engine.sizing import Footprint, MainMemory, PoolSizeError, PoolSizer

SCHEDULER = SchedulerConfig(max_model_len=100, max_num_seqs=4)
"""One sequence needs 7 blocks of 16 tokens."""


def blocks(*, bytes_per_block: int = 1000, **cache: Any) -> int:
    footprint = Footprint(weights=0, buffers=0, bytes_per_block=bytes_per_block)
    sizer = PoolSizer(CacheConfig(**cache), MainMemory())
    return sizer.size(SCHEDULER, footprint, lambda: pytest.fail("a CPU is not measured")).num_blocks


def test_as_configured_in_blocks_or_bytes() -> None:
    assert blocks(num_gpu_blocks_override=7) == 7
    assert blocks(kv_cache_memory_bytes=9999) == 9
    assert blocks(num_gpu_blocks_override=8, kv_cache_memory_bytes=1) == 8


def test_unconfigured_on_a_cpu_it_is_what_can_be_of_use() -> None:
    assert blocks() == 4 * 7


@pytest.mark.parametrize(
    ("cache", "numbers"),
    [
        ({"num_gpu_blocks_override": 6}, ("6 blocks", "96 tokens", "100", "7 blocks", "7000")),
        ({"kv_cache_memory_bytes": 6999}, ("6 blocks", "6999", "7000 bytes")),
    ],
)
def test_too_small_is_refused(cache: dict[str, Any], numbers: tuple[str, ...]) -> None:
    with pytest.raises(PoolSizeError) as refused:
        blocks(**cache)
    for number in numbers:
        assert number in str(refused.value)


def test_more_than_is_free_is_refused() -> None:
    with pytest.raises(PoolSizeError, match=r"takes 953\.67 GiB, but .* GiB are free"):
        blocks(num_gpu_blocks_override=1024, bytes_per_block=10**9)
