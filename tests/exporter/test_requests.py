"""Requests are calls: how many wait and run between two heartbeats, and since when the oldest."""

from kvscope_events.events import (
    Batch,
    EngineEvent,
    PoolCreated,
    RequestArrived,
    RequestPreempted,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    SequenceAdded,
)
from kvscope_exporter.state import Requests
from tests.exporter.page import batch_of, ended, finished, make_exporter, put, step, value

NEVER_RAN = {"queue_ns": None, "prefill_ns": None, "decode_ns": None}


def preempted(sequence: int, request: int) -> RequestPreempted:
    return RequestPreempted(sequence, request, "recompute", "out_of_blocks", 5, 2, 1)


def arrival(request: int, *sequences: int) -> list[EngineEvent]:
    return [RequestArrived(request, 5, 5), *(SequenceAdded(s, request, 5, 5) for s in sequences)]


def counts(requests: Requests) -> tuple[int, int, int, int]:
    """Requests that wait and run, sequences that wait and run."""
    return (
        requests.waiting,
        requests.running,
        requests.sequences_waiting,
        requests.sequences_running,
    )


def test_requests_move_between_heartbeats_and_the_heartbeat_decides() -> None:
    requests = Requests()
    assert not requests.known
    requests.on_batch(batch_of(PoolCreated(8, 4, 0), *arrival(0, 0)))
    assert requests.known
    assert counts(requests) == (1, 0, 1, 0)
    requests.on_batch(batch_of(RequestScheduled(0, 1, 0), step(running=1)))
    assert counts(requests) == (0, 1, 0, 1)
    requests.apply(preempted(0, 0))
    assert counts(requests) == (1, 0, 1, 0)
    requests.apply(ended(0, reason="abort"))  # aborted while it waits again
    requests.apply(finished(0, reason="abort"))
    assert counts(requests) == (0, 0, 0, 0)
    requests.apply(step(waiting=6, running=4, requests_waiting=3, requests_running=2))
    assert counts(requests) == (3, 2, 6, 4)
    requests.apply(ended(5, reason="abort", **NEVER_RAN))
    requests.apply(finished(5, reason="abort", queue_ns=None))
    assert counts(requests) == (2, 2, 5, 4)
    requests.apply(ended(4))
    requests.apply(finished(4))
    assert counts(requests) == (2, 1, 5, 3)
    assert requests.finished == {
        "stop": 1,
        "length": 0,
        "abort": 2,
        "error": 0,
        "stop_string_or_abort": 0,
    }


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


def test_a_request_runs_while_one_of_its_sequences_does() -> None:
    requests = Requests()
    requests.on_batch(batch_of(PoolCreated(8, 4, 0), *arrival(0, 7, 8), RequestScheduled(0, 1, 0)))
    requests.apply(step(running=2, requests_running=1, requests_waiting=0))
    requests.apply(preempted(8, 0))
    assert counts(requests) == (0, 1, 1, 1)
    requests.on_batch(batch_of(preempted(7, 0), time_ns=50))
    assert counts(requests) == (1, 0, 2, 0)
    assert requests.oldest_since_ns == 50
    requests.apply(RequestResumed(7, 0, 0, 0, 1))
    assert counts(requests) == (0, 1, 1, 1)
    assert requests.oldest_since_ns is None


def test_a_request_waits_when_only_preempted_sequences_are_left() -> None:
    requests = Requests()
    requests.on_batch(batch_of(PoolCreated(8, 4, 0), *arrival(0, 7, 8), RequestScheduled(0, 1, 0)))
    requests.apply(step(running=2, requests_running=1, requests_waiting=0))
    requests.on_batch(batch_of(preempted(8, 0), ended(7, request=0), time_ns=60))
    assert counts(requests) == (1, 0, 1, 0)
    assert requests.oldest_since_ns == 60


def test_the_oldest_wait_is_that_of_the_first_in_line() -> None:
    requests = Requests()
    requests.on_batch(Batch(0, 1, [PoolCreated(8, 4, 0)], 0, 100))
    assert requests.waiting_known
    assert requests.oldest_since_ns is None
    for number in range(3):
        requests.on_batch(Batch(1, 2, arrival(number, number), 0, 200 + number))
    assert requests.oldest_since_ns == 200, "on our clock, not on the producer's"
    requests.apply(RequestScheduled(0, 1, 0))
    assert requests.oldest_since_ns == 201
    requests.on_batch(Batch(2, 3, [preempted(0, 0)], 0, 300))
    assert requests.oldest_since_ns == 201, "a preempted request waits from its preemption on"
    requests.apply(ended(1, reason="abort", **NEVER_RAN))
    requests.apply(finished(1, reason="abort", queue_ns=None))
    requests.apply(RequestScheduled(2, 1, 0))
    assert requests.oldest_since_ns == 300
    requests.apply(RequestResumed(0, 0, 0, 0, 1))
    assert requests.oldest_since_ns is None


def test_after_a_gap_the_oldest_is_unknown_until_all_waiting_requests_are_known() -> None:
    requests = Requests()
    requests.on_batch(batch_of(PoolCreated(8, 4, 0), *arrival(0, 0)))
    requests.on_gap()
    assert not requests.waiting_known
    requests.on_batch(batch_of(*arrival(1, 1), step(waiting=2), time_ns=10))
    assert not requests.waiting_known, "one of them came before the gap"
    requests.on_batch(batch_of(RequestScheduled(0, 1, 0), step(waiting=1, running=1), time_ns=20))
    assert requests.waiting_known
    assert requests.oldest_since_ns == 10


def test_the_page_counts_calls_and_their_sequences_apart() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 1, PoolCreated(8, 4, 0), *arrival(0, 7, 8), *arrival(1, 9))
    assert value(exporter, "kvscope_requests", state="waiting") == 2
    assert value(exporter, "kvscope_sequences", state="waiting") == 3
    heartbeat = step(waiting=1, running=2, requests_running=1)
    put(subscription, 1, 2, RequestScheduled(0, 1, 0), heartbeat)
    assert value(exporter, "kvscope_sequences", state="waiting") == 1
    assert value(exporter, "kvscope_sequences", state="running") == 2
