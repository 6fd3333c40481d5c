"""A call with several sequences: one request in the events, all or nothing at the door."""

from typing import Any

import pytest

from kvscope_engine.step_loop import QueueFullError
from kvscope_events.events import (
    EngineEvent,
    FirstToken,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from tests.support.accounting import Accounting, continuation
from tests.support.running import Running
from tests.support.waiting import wait_for


def of_type(events: list[EngineEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_four_choices_are_one_request_and_four_sequences() -> None:
    engine = Accounting(num_blocks=24)
    request = engine.call([[1, 2, 3, 4, 5]], max_tokens=3, n=4)
    engine.run()
    (arrived,) = of_type(engine.events, RequestArrived)
    assert (arrived.request, arrived.prompt_tokens, arrived.max_tokens) == (
        request.request_id,
        5,
        3,
    )
    added = of_type(engine.events, SequenceAdded)
    assert [(e.sequence, e.request) for e in added] == [(i, arrived.request) for i in range(4)]
    assert len(of_type(engine.events, RequestScheduled)) == 1
    assert len(of_type(engine.events, FirstToken)) == 1
    ended = of_type(engine.events, SequenceFinished)
    assert sorted(e.sequence for e in ended) == [0, 1, 2, 3]
    (finished,) = of_type(engine.events, RequestFinished)
    assert engine.events.index(finished) > engine.events.index(ended[-1])
    assert (finished.prompt_tokens, finished.output_tokens, finished.sequences) == (5, 12, 4)
    assert finished.reason == "length"


def test_each_prompt_of_a_call_counts_once_however_many_choices_it_has() -> None:
    engine = Accounting(num_blocks=40, max_num_seqs=8)
    request = engine.call([[1, 2, 3], [4] * 7], max_tokens=2, n=2)
    engine.run()
    (arrived,) = of_type(engine.events, RequestArrived)
    (finished,) = of_type(engine.events, RequestFinished)
    assert arrived.prompt_tokens == finished.prompt_tokens == 10
    assert [e.prompt_tokens for e in of_type(engine.events, SequenceAdded)] == [3, 3, 7, 7]
    assert finished.output_tokens == 8
    for sequence in request.sequences:
        expected = continuation(sequence.prompt, 2, sequence.sampling.seed)
        assert sequence.tokens[sequence.prompt_length :] == expected


@pytest.mark.parametrize(
    ("reasons", "worst"),
    [
        (("stop", "stop"), "stop"),
        (("stop", "length"), "length"),
        (("length", "abort"), "abort"),
        (("abort", "error"), "error"),
    ],
)
def test_a_request_ends_with_the_worst_reason_of_its_sequences(
    reasons: tuple[Any, Any], worst: str
) -> None:
    engine = Accounting()
    request = engine.call([[1, 2]], max_tokens=9, n=2)
    engine.step()
    for sequence, reason in zip(request.sequences, reasons, strict=True):
        assert not of_type(engine.events, RequestFinished)
        engine.scheduler.finish(sequence, reason)
    engine.flush()
    assert [e.reason for e in of_type(engine.events, SequenceFinished)] == list(reasons)
    assert [e.reason for e in of_type(engine.events, RequestFinished)] == [worst]


def test_a_call_is_scheduled_with_its_first_sequence_and_runs_until_its_last_stops() -> None:
    engine = Accounting(max_num_seqs=1)
    request = engine.call([[1] * 3], max_tokens=2, n=2)
    assert engine.scheduler.requests.num_waiting == 1
    engine.step()
    assert engine.scheduler.requests.num_waiting == 0, "one of its sequences runs"
    assert engine.scheduler.num_waiting == 1
    engine.run()
    (scheduled,) = of_type(engine.events, RequestScheduled)
    assert scheduled.request == request.request_id
    first, second = of_type(engine.events, SequenceFinished)
    assert first.queue_ns == scheduled.queue_ns < second.queue_ns
    (finished,) = of_type(engine.events, RequestFinished)
    assert finished.queue_ns == scheduled.queue_ns


def test_a_sequence_is_preempted_and_its_call_goes_on() -> None:
    engine = Accounting(num_blocks=10, max_num_batched_tokens=40)
    request = engine.call([[1] * 16, [2] * 16], max_tokens=20)
    engine.run()
    (preempted,) = of_type(engine.events, RequestPreempted)
    (resumed,) = of_type(engine.events, RequestResumed)
    victim = request.sequences[1].sequence_id
    assert (preempted.sequence, preempted.request) == (victim, request.request_id)
    assert (resumed.sequence, resumed.request) == (victim, request.request_id)
    (finished,) = of_type(engine.events, RequestFinished)
    assert (finished.preemptions, finished.reason) == (1, "length")


def test_under_fcfs_a_priority_means_nothing() -> None:
    engine = Accounting(max_num_seqs=1)
    calls = [
        engine.call([[number]], 1, priority=priority) for number, priority in enumerate((5, 0))
    ]
    engine.run()
    scheduled = [e.request for e in of_type(engine.events, RequestScheduled)]
    assert scheduled == [call.request_id for call in calls]


def test_a_step_names_calls_and_sequences_apart(running: Running) -> None:
    running.runner.open.clear()
    call = running.call([[1, 2]], max_tokens=3, n=3)
    running.runner.open.set()
    wait_for(lambda: all(running.reason(s) for s in call.sequences))
    first, *others = of_type(running.all_events(), StepCompleted)
    assert (first.running, first.requests_running) == (3, 1)
    assert first.emitted == first.first_tokens == [s.sequence_id for s in call.sequences]
    assert [step.first_tokens for step in others] == [[], []]
    assert (others[-1].requests_running, others[-1].requests_waiting) == (0, 0)


def test_one_choice_is_stopped_while_the_others_go_on(running: Running) -> None:
    running.runner.steps_until_hold = 4
    call = running.call([[1]], max_tokens=30, n=3)
    wait_for(lambda: not running.runner.open.is_set())
    stopped, *others = call.sequences
    running.loop.abort_sequence(stopped, "stop")
    running.runner.open.set()
    wait_for(lambda: all(running.reason(s) for s in call.sequences))
    assert running.reason(stopped) == "stop"
    assert len(running.tokens(stopped)) <= 5, "only the step under way may still count"
    for sequence in others:
        assert running.reason(sequence) == "length"
        assert running.tokens(sequence) == continuation([1], 30)
    events = running.all_events()
    reasons = {e.sequence: e.reason for e in of_type(events, SequenceFinished)}
    assert [reasons[s.sequence_id] for s in call.sequences] == ["stop", "length", "length"]
    assert [e.reason for e in of_type(events, RequestFinished)] == ["length"]


def test_an_abort_ends_what_is_left_of_a_call(running: Running) -> None:
    running.runner.steps_until_hold = 3
    call, other = running.call([[1]], max_tokens=30, n=3), running.submit([2], 30)
    wait_for(lambda: not running.runner.open.is_set())
    running.loop.abort_sequence(call.sequences[0], "stop")
    running.loop.abort(call.request_id)
    running.loop.abort(call.request_id)  # it has ended: left alone
    running.runner.open.set()
    wait_for(lambda: running.reason(other))
    assert [running.reason(s) for s in call.sequences] == ["stop", "abort", "abort"]
    assert running.tokens(other) == continuation([2], 30)
    reasons = {e.request: e.reason for e in of_type(running.all_events(), RequestFinished)}
    assert reasons[call.request_id] == "abort"


def test_a_full_queue_takes_no_sequence_of_a_call_and_counts_calls() -> None:
    engine = Running(queue_limit=2)
    engine.runner.open.clear()
    engine.loop.start()
    accepted = [engine.call([[1]], max_tokens=2, n=4)]  # all four run
    wait_for(lambda: engine.loop._commands.empty())
    accepted += [engine.call([[2], [3]], max_tokens=2, n=3) for _ in range(2)]
    with pytest.raises(QueueFullError, match="2 requests wait already, the limit is 2"):
        engine.call([[4]], max_tokens=2, n=5)
    assert engine.loop.num_in_flight == 3
    engine.runner.open.set()
    wait_for(lambda: all(engine.reason(s) for call in accepted for s in call.sequences))
    engine.loop.shutdown(0)
    events = engine.all_events()
    assert len(of_type(events, RequestArrived)) == 3
    assert len(of_type(events, SequenceAdded)) == 4 + 6 + 6
    assert of_type(events, RequestRejected) == [RequestRejected("queue_full")]
