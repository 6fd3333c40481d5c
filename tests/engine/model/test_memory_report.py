"""The engine's report of its memory on CUDA, from figures as torch's allocator gives them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kvscope_engine.model.memory_report import MemoryReporter

WEIGHTS, POOL, PROFILED = 100, 1000, 30


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what torch says from now on."""
    said: dict[str, Any] = {}
    monkeypatch.setattr("torch.cuda.memory_stats_as_nested_dict", lambda device: said)
    monkeypatch.setattr(
        "torch.cuda.get_device_properties", lambda device: SimpleNamespace(uuid="0-1")
    )

    def say(**statistics: int) -> None:
        said["allocated_bytes"] = {"all": statistics}

    return say


def reporter(profiled_peak: int) -> MemoryReporter:
    return MemoryReporter(
        torch.device("cuda", 0),
        weights_bytes=WEIGHTS,
        kv_pool_bytes=POOL,
        profiled_peak=profiled_peak,
    )


def test_the_largest_step_of_start_up_counts_though_the_pool_hides_it(
    allocator: Callable[..., None],
) -> None:
    """Seen on an H200: start-up's 3.9 GiB became 0.3 GiB once the pool was there."""
    memory = reporter(PROFILED)
    allocator(current=WEIGHTS + POOL, peak=WEIGHTS + POOL)
    assert memory.sample().activation_peak_bytes == PROFILED
    allocator(current=WEIGHTS + POOL, peak=WEIGHTS + POOL + PROFILED + 1)
    assert memory.sample().activation_peak_bytes == PROFILED + 1


def test_without_a_profile_the_peak_is_what_steps_took(allocator: Callable[..., None]) -> None:
    allocator(current=WEIGHTS + POOL, peak=WEIGHTS + POOL + 7)
    sample = reporter(0).sample()
    assert sample.activation_peak_bytes == 7
    assert sample.device_uuid == "GPU-0-1"


def test_what_the_allocator_does_not_keep_is_absent(allocator: Callable[..., None]) -> None:
    sample = reporter(PROFILED).sample()
    assert sample.allocated_bytes is None
    assert sample.activation_peak_bytes is None
