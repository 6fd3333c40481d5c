"""Every event has a fold that answers it, and the pure counters count."""

from typing import get_args

import pytest

from kvscope_events.events import (
    AllocationFailed,
    Batch,
    BlockCopied,
    BlocksEvicted,
    DeviceMemorySampled,
    DeviceOutOfMemory,
    EngineEvent,
    PoolCreated,
    RequestArrived,
)
from kvscope_exporter.collect.engine_memory import EngineMemory
from kvscope_exporter.collect.parts import PARTS
from kvscope_exporter.state import Churn, DeviceMemory, EventCounts, Fold, Folds, Steps
from kvscope_exporter.state.device_memory import MAX_DEVICES
from kvscope_exporter.state.engine import Engine
from tests.exporter.stream import batch_of, block_hash, step

FOLDS: tuple[Fold, ...] = (*Folds(part.fold for part in PARTS),)
"""One of each that an engine is read with."""


def test_every_event_has_a_handler_somewhere() -> None:
    folds = (fold for fold in FOLDS if not isinstance(fold, EventCounts))
    handled = {event for fold in folds for event in fold.handlers} | Engine().calls.handlers.keys()
    assert {event for event in handled if isinstance(event, type)} == set(get_args(EngineEvent))


def test_names_of_folds_are_unique() -> None:
    assert len({fold.name for fold in FOLDS}) == len(FOLDS)


def test_churn_counts_blocks_by_cause() -> None:
    churn = Churn()
    churn.on_batch(
        batch_of(
            BlocksEvicted([1], [block_hash(1)], "reset"),
            BlockCopied(1, 3, 4),
            AllocationFailed(0, 2, 1),
        )
    )
    assert churn.copies == 1
    assert churn.evictions == {"capacity": 0, "reset": 1, "ordered": 0}
    assert churn.allocation_failures == 1


def test_an_eviction_with_only_names_or_only_blocks_counts() -> None:
    churn = Churn()
    churn.apply(BlocksEvicted([], [block_hash(1), block_hash(2)], "capacity"))
    churn.apply(BlocksEvicted([1, 2, 3], [], "capacity"))
    assert churn.evictions["capacity"] == 5


def test_before_the_first_step_its_age_is_that_of_the_pool() -> None:
    steps = Steps()
    steps.on_batch(batch_of(PoolCreated(8, 4, 0), time_ns=5))
    assert steps.last_step_ns == 5, "an engine that hangs in its first step is seen to hang"


def test_the_last_step_is_known_on_our_clock() -> None:
    steps = Steps()
    steps.on_batch(Batch(0, 5, [step()], wall_ns=7, arrived_ns=9))
    assert steps.last_step_ns == 9


def test_steps_add_up() -> None:
    steps = Steps()
    steps.on_batch(batch_of(step(prefill_tokens=30, decode_tokens=2), time_ns=7))
    steps.on_batch(batch_of(step(decode_tokens=3, duration_ns=1_000_000), time_ns=9))
    assert (steps.prefill_tokens, steps.decode_tokens) == (30, 5)
    assert steps.last_step_ns == 9
    assert steps.duration.total == pytest.approx(0.011)


def test_an_engine_that_names_ever_more_devices_has_no_more_than_a_host_can() -> None:
    memory = DeviceMemory()
    for number in range(10 * MAX_DEVICES):
        event = DeviceMemorySampled(1, f"GPU-{number}", 1, 1, activation_peak_bytes=number)
        memory.on_batch(batch_of(event))
    assert len(memory.samples()) == len(memory.activation_peaks) == MAX_DEVICES
    memory.on_batch(batch_of(DeviceMemorySampled(2, "GPU-0", 1, 1)))
    assert memory.samples()["GPU-0"][-1].event.pid == 2, "those known go on"


def test_device_memory_keeps_the_newest_sample_of_each_device_and_the_largest_peak() -> None:
    memory = DeviceMemory()
    second = 1_000_000_000
    for time, peak, retries in ((1, 5, 0), (2, 9, 1), (3, 7, 1)):
        event = DeviceMemorySampled(
            pid=1,
            device_uuid="GPU-0",
            weights_bytes=1,
            kv_pool_bytes=1,
            activation_peak_bytes=peak,
            alloc_retries=retries,
        )
        memory.on_batch(batch_of(event, time_ns=time * second))
    memory.on_batch(batch_of(DeviceMemorySampled(2, None, 1, 1), time_ns=2 * second))
    engines = EngineMemory([memory.samples()], [memory.activation_peaks])
    newest = {uuid: history[-1].event.pid for uuid, history in memory.samples().items()}
    assert newest == {
        "GPU-0": 1,
        None: 2,
    }
    assert memory.activation_peaks == {"GPU-0": 9}
    nearest = engines.nearest("GPU-0", second + 1)
    assert nearest is not None
    assert nearest.alloc_retries == 0
    assert engines.nearest("GPU-0", 14 * second) is None
    assert engines.nearest("GPU-1", second) is None
    assert set(engines.fresh(12 * second)) == {"GPU-0"}
    assert not engines.fresh(14 * second), "the silent one is forgotten"


def test_device_memory_is_joined_on_the_clock_of_the_reader() -> None:
    memory = DeviceMemory()
    memory.on_batch(Batch(0, 5, [DeviceMemorySampled(1, "GPU-0", 0, 0)], 0, 10**12))
    engines = EngineMemory([memory.samples()], [])
    assert engines.nearest("GPU-0", 10**12) is not None
    assert engines.nearest("GPU-0", 5) is None


def test_out_of_memory_is_counted_by_what_was_done() -> None:
    memory = DeviceMemory()
    memory.on_batch(
        batch_of(
            DeviceOutOfMemory(None, "retried", 64, 32),
            DeviceOutOfMemory(1024, "retried", 32, 16),
            DeviceOutOfMemory(1024, "gave_up", 1),
        )
    )
    assert memory.oom_events == {"retried": 2, "gave_up": 1}


def test_the_census_counts_types_alike_by_batch_and_one_by_one() -> None:
    one, many = EventCounts(), EventCounts()
    events: list[EngineEvent] = [step(), step(), RequestArrived(0, 1, 1)]
    many.on_batch(batch_of(*events))
    for event in events:
        one.apply(event)
    assert one.counts == many.counts
    assert sum(one.counts.values()) == 3


def test_engines_on_one_device_are_added_up_and_their_largest_step_counts() -> None:
    memories = []
    for pid, peak in ((1, 5), (2, 9)):
        memory = DeviceMemory()
        sample = DeviceMemorySampled(
            pid, "GPU-0", 10 * pid, 1, allocated_bytes=100 * pid, activation_peak_bytes=peak
        )
        memory.on_batch(batch_of(sample, time_ns=1))
        memories.append(memory)
    engines = EngineMemory(
        [memory.samples() for memory in memories], [m.activation_peaks for m in memories]
    )
    both = engines.fresh(1)["GPU-0"]
    assert (both.weights_bytes, both.allocated_bytes, both.reserved_bytes) == (30, 300, None)
    assert engines.pids("GPU-0", 1) == {1, 2}
    assert engines.activation_peaks == {"GPU-0": 9}
