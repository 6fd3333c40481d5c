"""Latencies equal what a plain per-request bookkeeping finds, in bounded memory."""

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import (
    EngineEvent,
    FirstToken,
    RequestArrived,
    RequestScheduled,
    SequenceAdded,
)
from kvscope_exporter.state import Histogram, Latency
from kvscope_exporter.state.buckets import INTER_TOKEN_SECONDS, VLLM_INTER_TOKEN_SECONDS, merged
from tests.exporter.stream import batch_of, ended, finished, step

MS = 1_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"

STEPS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 4), unique=True, max_size=5),  # who emits
        st.integers(1, 300),  # milliseconds since the step before
        st.lists(st.integers(0, 4), unique=True, max_size=2),  # who ends with this step
        st.booleans(),  # whether its end comes before the step
    ),
    max_size=40,
)


@given(STEPS)
def test_gaps_are_those_of_each_sequence_alone(
    steps: list[tuple[list[int], int, list[int], bool]],
) -> None:
    latency = Latency()
    expected = Histogram(merged(INTER_TOKEN_SECONDS, VLLM_INTER_TOKEN_SECONDS))
    last: dict[int, int] = {}
    now = 0
    for emitted, pause, leaving, before in steps:
        now += pause * MS
        events = [ended(sequence) for sequence in leaving]
        heartbeat = step(emitted=emitted)
        ordered: list[EngineEvent] = [*events, heartbeat] if before else [heartbeat, *events]
        latency.on_batch(batch_of(*ordered, time_ns=now))
        for sequence in emitted:
            if sequence in last:
                expected.observe((now - last[sequence]) / 1e9)
            last[sequence] = now
        if not before:  # after its step: remembered until the next one, where it cannot emit
            latency.on_batch(batch_of(step(), time_ns=now))
        for sequence in leaving:
            last.pop(sequence, None)
        assert latency.num_tracked == len(last)
    assert latency.inter_token.counts == expected.counts
    assert abs(latency.inter_token.total - expected.total) < 1e-9


def test_the_first_token_is_not_a_gap_and_a_stall_is_one() -> None:
    latency = Latency()
    latency.on_batch(batch_of(step(emitted=[1, 2]), time_ns=0))
    assert sum(latency.inter_token.counts) == 0
    latency.on_batch(batch_of(step(emitted=[1]), time_ns=10 * MS))
    latency.on_batch(batch_of(step(), time_ns=20 * MS))
    latency.on_batch(batch_of(step(emitted=[1, 2, 3]), time_ns=500 * MS))
    assert sum(latency.inter_token.counts) == 3
    assert abs(latency.inter_token.total - (0.01 + 0.49 + 0.5)) < 1e-9


def test_an_output_of_several_tokens_is_as_many_equal_gaps() -> None:
    latency = Latency()
    latency.on_batch(batch_of(step(emitted=[1, 2]), time_ns=0))
    latency.on_batch(batch_of(step(emitted=[1, 2], emitted_tokens=[3, 1]), time_ns=60 * MS))
    latency.on_batch(batch_of(step(emitted=[1, 2]), time_ns=70 * MS))
    assert sum(latency.inter_token.counts) == 3 + 1 + 2
    assert latency.inter_token.total == pytest.approx(0.06 + 0.06 + 0.02)
    assert latency.inter_token.counts[bisect_left(latency.inter_token.bounds, 0.02)] == 3
    assert sum(latency.inter_output.counts) == 4, "vLLM's, by output"
    assert latency.inter_output.total == pytest.approx(latency.inter_token.total)


def test_counts_of_tokens_that_do_not_match_the_sequences_are_left_out() -> None:
    latency = Latency()
    latency.on_batch(batch_of(step(emitted=[1, 2]), time_ns=0))
    latency.on_batch(batch_of(step(emitted=[1, 2], emitted_tokens=[3]), time_ns=60 * MS))
    latency.on_batch(batch_of(step(emitted=[1, 2], emitted_tokens=[0, 1]), time_ns=80 * MS))
    assert sum(latency.inter_token.counts) == 2 + 1


def test_after_a_gap_the_first_emission_of_a_sequence_is_not_a_sample() -> None:
    latency = Latency()
    latency.on_batch(batch_of(step(emitted=[1]), time_ns=0))
    latency.on_gap()
    latency.on_batch(batch_of(step(emitted=[1]), time_ns=900 * MS))
    assert sum(latency.inter_token.counts) == 0
    latency.on_batch(batch_of(step(emitted=[1]), time_ns=910 * MS))
    assert sum(latency.inter_token.counts) == 1


def test_a_traced_request_leaves_its_trace_in_every_histogram() -> None:
    latency = Latency()
    latency.on_batch(
        batch_of(
            RequestArrived(1, 10, 10, trace_id=TRACE),
            SequenceAdded(11, 1, 10, 10),
            SequenceAdded(12, 1, 10, 10),
            RequestArrived(2, 10, 10),
            SequenceAdded(13, 2, 10, 10),
            RequestScheduled(1, 5 * MS, 0),
            FirstToken(1, 20 * MS),
            step(emitted=[11, 13]),
            time_ns=0,
        )
    )
    latency.on_batch(batch_of(step(emitted=[11, 13]), time_ns=40 * MS))
    latency.on_batch(
        batch_of(ended(11), ended(12), finished(1), step(emitted=[13, 11]), time_ns=60 * MS)
    )
    for histogram in (
        latency.queue,
        latency.first_token,
        latency.inter_token,
        latency.duration,
    ):
        assert {e.trace_id for e in histogram.exemplars if e is not None} == {TRACE}
    assert [e.value for e in latency.inter_token.exemplars if e is not None] == [0.02, 0.04]
    latency.on_batch(batch_of(ended(13), finished(2), step(), time_ns=70 * MS))
    assert latency.num_tracked == 0


def test_a_call_of_two_sequences_is_one_request_and_two_streams_of_tokens() -> None:
    latency = Latency()
    latency.on_batch(
        batch_of(
            RequestArrived(1, 10, 10),
            SequenceAdded(1, 1, 10, 10),
            SequenceAdded(2, 1, 10, 10),
            RequestScheduled(1, 5 * MS, 0),
            FirstToken(1, 20 * MS),
            step(emitted=[1, 2]),
        )
    )
    ends = ended(1, request=1), ended(2, request=1), finished(1, sequences=2)
    latency.on_batch(batch_of(*ends, step(emitted=[1, 2]), time_ns=10 * MS))
    counts = {name: sum(getattr(latency, name).counts) for name in ("queue", "first_token")}
    assert counts == {"queue": 1, "first_token": 1}
    assert sum(latency.duration.counts) == 1
    assert sum(latency.inter_token.counts) == 2


def test_an_untraced_request_leaves_none() -> None:
    latency = Latency()
    latency.on_batch(batch_of(RequestArrived(1, 1, 1), FirstToken(1, MS), step(emitted=[1])))
    assert not any(latency.first_token.exemplars)


def test_a_client_that_gives_up_before_the_first_token_is_told_by_how_long_it_waited() -> None:
    latency = Latency()
    waited = {"reason": "abort", "elapsed_ns": 4_000 * MS}
    latency.on_batch(
        batch_of(
            finished(1, **waited, output_tokens=0, queue_ns=None),
            finished(2, **waited, output_tokens=0),
            finished(3, **waited, output_tokens=1),
            finished(4, reason="error", elapsed_ns=4_000 * MS, output_tokens=0),
            finished(5, reason="stop", elapsed_ns=4_000 * MS),
        )
    )
    assert latency.abandoned.counts_at((2.5, 5)) == [0, 2, 0]
    assert latency.abandoned.total == 8
