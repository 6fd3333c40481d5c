"""Every fold has an answer to every event, and the pure counters count."""

from typing import get_args

import pytest

from kvscope_events.events import (
    AllocationFailed,
    BlocksAllocated,
    BlocksEvicted,
    BlocksReleased,
    DeviceMemorySampled,
    DeviceOutOfMemory,
    EngineEvent,
    PoolCreated,
    RequestArrived,
    RequestPreempted,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
)
from exporter.catalogue import FOLDS
from exporter.fold import (
    Census,
    Churn,
    DeviceMemory,
    Fold,
    Folds,
    Preemption,
    Requests,
    Steps,
    Vllm,
)
from tests.exporter.support import batch_of, block_hash, finished, step

ALL = Folds(Vllm(2048)).all


@pytest.mark.parametrize("fold", ALL, ids=lambda fold: fold.name)
def test_every_event_is_handled_or_ignored_on_purpose(fold: Fold) -> None:
    assert set(fold.handlers) | fold.ignored == set(get_args(EngineEvent))
    assert not set(fold.handlers) & fold.ignored


def test_the_catalogue_knows_every_fold() -> None:
    assert tuple(fold.name for fold in ALL) == FOLDS


def test_churn_counts_blocks_by_cause() -> None:
    churn = Churn()
    churn.on_batch(
        batch_of(
            BlocksAllocated(0, [1, 2], "prefill"),
            BlocksAllocated(0, [3], "decode"),
            BlocksReleased(0, [1], [2], [3], "preempted"),
            BlocksEvicted([1], [block_hash(1)], "reset"),
            AllocationFailed(0, 2, 1),
        )
    )
    assert churn.allocations == {"prefill": 2, "decode": 1}
    assert churn.releases == {"finished": 0, "aborted": 0, "preempted": 3}
    assert churn.evictions == {"capacity": 0, "reset": 1}
    assert churn.allocation_failures == 1


def test_the_bill_of_preemption() -> None:
    preemption = Preemption()
    preemption.on_batch(
        batch_of(
            RequestPreempted(0, "recompute", "out_of_blocks", 100, 7, 5),
            RequestResumed(0, 40, 60, 2_000_000_000),
            RequestPreempted(1, "recompute", "out_of_blocks", 10, 1, 5),
        )
    )
    assert preemption.preemptions == {
        ("recompute", "out_of_blocks"): 2,
        ("recompute", "out_of_memory"): 0,
    }
    assert preemption.discarded_tokens == 110
    assert preemption.recomputed_tokens == 40
    assert preemption.stalled_ns == 2_000_000_000


def test_requests_move_between_heartbeats_and_the_heartbeat_decides() -> None:
    requests = Requests()
    assert not requests.known
    requests.on_batch(batch_of(PoolCreated(8, 4, 0), RequestArrived(0, 5, 5)))
    assert requests.known
    assert (requests.waiting, requests.running) == (1, 0)
    requests.apply(RequestScheduled(0, 1, 0))
    assert (requests.waiting, requests.running) == (0, 1)
    requests.apply(RequestPreempted(0, "recompute", "out_of_blocks", 5, 2, 1))
    assert (requests.waiting, requests.running) == (1, 0)
    requests.apply(finished(0, reason="abort"))  # aborted while it waits again
    assert (requests.waiting, requests.running) == (0, 0)
    requests.apply(step(waiting=3, running=2))
    assert (requests.waiting, requests.running) == (3, 2)
    requests.apply(finished(5, reason="abort", queue_ns=None, prefill_ns=None, decode_ns=None))
    assert (requests.waiting, requests.running) == (2, 2)
    requests.apply(finished(4))
    assert (requests.waiting, requests.running) == (2, 1)
    assert requests.finished == {"stop": 1, "length": 0, "abort": 2, "error": 0}


def test_requests_are_unknown_from_a_gap_to_the_next_heartbeat() -> None:
    requests = Requests()
    requests.apply(step(running=1))
    requests.on_gap()
    requests.apply(PoolCreated(8, 4, 0))  # says nothing of those that were there before
    assert not requests.known
    requests.apply(RequestRejected("queue_full"))
    assert requests.rejected["queue_full"] == 1
    requests.apply(step(running=2))
    assert requests.known


def test_before_the_first_step_its_age_is_that_of_the_pool() -> None:
    steps = Steps()
    steps.on_batch(batch_of(PoolCreated(8, 4, 0), time_ns=5))
    assert steps.last_step_ns == 5, "an engine that hangs in its first step is seen to hang"


def test_steps_add_up() -> None:
    steps = Steps()
    steps.on_batch(batch_of(step(prefill_tokens=30, decode_tokens=2), time_ns=7))
    steps.on_batch(batch_of(step(decode_tokens=3, duration_ns=1_000_000), time_ns=9))
    assert (steps.prefill_tokens, steps.decode_tokens) == (30, 5)
    assert steps.last_step_ns == 9
    assert steps.duration.total == pytest.approx(0.011)


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
    assert {uuid: event.pid for uuid, event in memory.fresh(4 * second).items()} == {
        "GPU-0": 1,
        None: 2,
    }
    assert memory.activation_peaks == {"GPU-0": 9}
    nearest = memory.nearest("GPU-0", second + 1)
    assert nearest is not None
    assert nearest.alloc_retries == 0
    assert memory.nearest("GPU-0", 14 * second) is None
    assert memory.nearest("GPU-1", second) is None
    assert set(memory.fresh(13 * second)) == {"GPU-0"}, "the silent one is forgotten"


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
    one, many = Census(), Census()
    events: list[EngineEvent] = [step(), step(), RequestArrived(0, 1, 1)]
    many.on_batch(batch_of(*events))
    for event in events:
        one.apply(event)
    assert one.counts == many.counts
    assert sum(one.counts.values()) == 3
