"""Every nanosecond of every request is in one part: our engine, with forks, swaps and aborts."""

import time
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_engine.step import Step
from kvscope_events.events import (
    Batch,
    EngineEvent,
    FirstToken,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceAdded,
    SequenceFinished,
    StepScheduled,
)
from kvscope_exporter.state.step_time import StepTime
from kvscope_exporter.state.time_ledger import TimeLedger
from kvscope_exporter.state.time_parts import PARTS
from tests.exporter.stream import batch_of, ended, finished, step
from tests.support.accounting import Accounting

WAITS = [number for number, part in enumerate(PARTS) if part.startswith("wait_")]


def run(seed: int, *, samples: int, swap_blocks: int, tokens: int) -> list[Batch]:
    """Batches of an engine that is too small for its load; some clients leave."""
    random = Random(seed)
    engine = Accounting(
        num_blocks=12,
        max_num_seqs=4,
        max_num_batched_tokens=tokens,
        swap_blocks=swap_blocks,
    )
    taken = engine.bus.subscribe(1 << 16)
    steps = Step(engine.scheduler, engine.pool, engine.runner, engine.bus)
    arrived = 0
    while arrived < 14 or engine.live:
        if arrived < 14 and random.random() < 0.7:
            prompt = [random.randint(0, 2)] * random.randint(1, 12)
            number = random.randint(1, samples)
            now_ns = time.monotonic_ns()
            engine.call([prompt], random.randint(1, 20), n=number, arrival_ns=now_ns)
            arrived += 1
        if engine.live:
            steps.run()
            engine.flush()
        if engine.live and random.random() < 0.08:
            engine.scheduler.finish(random.choice(engine.live), "abort")
            engine.flush()
    batches = []
    while (next_ := taken.take()) is not None:
        batches.append(next_[0])
    return batches


def of_request(batches: list[Batch], request: int) -> list[Batch]:
    """The same without the events of other requests."""

    def is_its(event: EngineEvent) -> bool:
        return getattr(event, "request", request) == request

    return [
        msgspec.structs.replace(batch, events=[*filter(is_its, batch.events)]) for batch in batches
    ]


def ledger_of(batches: list[Batch]) -> TimeLedger:
    ledger = TimeLedger()
    for batch in batches:
        ledger.on_batch(batch)
    return ledger


@given(
    seed=st.integers(0, 1 << 30),
    samples=st.sampled_from([1, 3]),
    swap_blocks=st.sampled_from([0, 16]),
    tokens=st.sampled_from([8, 16, 64]),
)
def test_parts_of_a_request_add_up_to_its_duration(
    seed: int, samples: int, swap_blocks: int, tokens: int
) -> None:
    batches = run(seed, samples=samples, swap_blocks=swap_blocks, tokens=tokens)
    events = [event for batch in batches for event in batch.events]
    ended = [event for event in events if isinstance(event, RequestFinished)]
    first = {event.request: event.elapsed_ns for event in events if isinstance(event, FirstToken)}
    whole = ledger_of(batches)
    assert all(each.account and each.account.is_closed for each in whole.calls.requests.values())
    assert sum(whole.first_token) + sum(whole.rest) == sum(each.elapsed_ns for each in ended)
    total = [0] * len(PARTS)
    for end in ended:
        ledger = ledger_of(of_request(batches, end.request))
        assert min(*ledger.first_token, *ledger.rest) >= 0
        to_first = first.get(end.request, end.elapsed_ns)
        assert sum(ledger.first_token) == to_first
        assert sum(ledger.rest) == end.elapsed_ns - to_first
        total = [x + y for x, y in zip(total, ledger.first_token, strict=True)]
        if samples == 1:
            (sequence,) = (
                each
                for each in events
                if isinstance(each, SequenceFinished) and each.request == end.request
            )
            waited = sum(ledger.first_token[number] for number in WAITS)
            if sequence.queue_ns is not None:
                assert waited == sequence.queue_ns
            if sequence.prefill_ns is not None:
                assert sum(ledger.first_token) - waited == sequence.prefill_ns
                assert sequence.decode_ns is not None
                assert sum(ledger.rest) >= sequence.decode_ns
    assert total == whole.first_token


MS = 1_000_000


class Played:
    """Steps of 10 ms, a millisecond apart, by hand."""

    def __init__(self) -> None:
        self.ledger = TimeLedger()
        self.now_ns = 0
        self._arrivals: dict[int, int] = {}

    def arrive(self, request: int, before_ns: int = 0) -> list[EngineEvent]:
        """before_ns: it came so long before the last step's end."""
        self._arrivals[request] = self.now_ns - before_ns
        return [RequestArrived(request, 100, 9), SequenceAdded(request, request, 100, 9)]

    def admit(self, request: int) -> EngineEvent:
        return RequestScheduled(request, self.now_ns + MS - self._arrivals[request], 0)

    def step(self, *events: EngineEvent, ends: tuple[int, ...] = (), **changes: Any) -> None:
        """ends: requests that have their first token with this step, and end."""
        self.now_ns += 11 * MS
        for request in ends:
            elapsed_ns = self.now_ns - self._arrivals[request]
            events = (*events, FirstToken(request, elapsed_ns))
            end = {"elapsed_ns": elapsed_ns, "reason": "length"}
            events = (*events, ended(request, **end), finished(request, **end))
        fields = {"running": 1, "requests_running": 1, "duration_ns": 10 * MS, **changes}
        self.ledger.on_batch(batch_of(*events, step(**fields), time_ns=self.now_ns))

    @property
    def parts(self) -> dict[str, float]:
        """Milliseconds to the first token."""
        return {
            part: time_ns / MS
            for part, time_ns in zip(PARTS, self.ledger.first_token, strict=True)
            if time_ns
        }


def test_waits_belong_to_what_stopped_admission() -> None:
    """In the middle of a step a request comes; then each of these stops a step, and its own adapter
    three of them."""
    played = Played()
    played.step()
    came = played.arrive(1, before_ns=4 * MS)
    for stop in ("sequences", "blocks", "blocks", "tokens", "unexplained", "paused", None):
        waits = {"waiting": 1, "requests_waiting": 1, "admission_stop": stop}
        played.step(*came, **waits)
        came = []
    for _ in range(3):
        played.step(
            waiting=1,
            requests_waiting=1,
            admission_stop="sequences",
            deferred=[1],
            deferred_by=["adapter"],
        )
    chunk = StepScheduled([1], [30], 0)
    played.step(played.admit(1), chunk, prefill_tokens=30, decode_tokens=10)
    other = StepScheduled([2], [40], 0)
    played.step(other, prefill_tokens=40)
    played.step(chunk, prefill_tokens=30, ends=(1,))
    assert played.parts == {
        "wait_sequences": 11,
        "wait_blocks": 22,
        "wait_tokens": 11,
        "wait_transfer": 44,
        "wait_unexplained": 11,
        "wait_step": 5,  # until the running step ended, and until it was chosen
        "prefill_own": 7.5 + 10,
        "prefill_others": 2.5 + 10,
        "host": 2,
        "unknown": 11,
    }
    standing = dict(zip(PARTS, played.ledger.standing, strict=True))
    assert standing["wait_transfer"] == 44 * MS
    assert standing["wait_blocks"] == 22 * MS


def test_who_waits_for_the_end_of_a_step_waits_for_the_prompts_in_it() -> None:
    """Steps of 5 ms and 20 µs a token; one of a prompt of 1,000 tokens takes 25 ms."""
    played, random = Played(), Random(3)
    for _ in range(200):
        tokens = random.choice([0, 500])
        played.step(prefill_tokens=tokens, duration_ns=5 * MS + 20_000 * tokens)
    waits = {"waiting": 1, "requests_waiting": 1, "admission_stop": "empty"}
    came = played.arrive(1)
    played.now_ns += 14 * MS  # 11 of 25
    chunk = StepScheduled([2], [1000], 0)
    played.step(*came, chunk, prefill_tokens=1000, duration_ns=25 * MS, **waits)
    own = {"prefill_tokens": 100, "decode_tokens": 0}
    played.step(played.admit(1), StepScheduled([1], [100], 0), ends=(1,), **own)
    assert played.parts["prefill_others"] == pytest.approx(20, rel=0.02)
    assert played.parts["wait_step"] == pytest.approx(6, rel=0.05)


def test_time_before_a_preemption_and_after_it_is_told_apart() -> None:
    played = Played()
    played.step()
    chunk = StepScheduled([1], [50], 0)
    played.step(*played.arrive(1), played.admit(1), chunk, prefill_tokens=50)
    victim = RequestPreempted(1, 1, "recompute", "out_of_blocks", 50, 4, 10 * MS)
    played.step(victim, waiting=1, requests_waiting=1, admission_stop="blocks")
    played.step(waiting=1, requests_waiting=1, admission_stop="blocks")
    played.step(RequestResumed(1, 1, 50, 0, 22 * MS), chunk, prefill_tokens=50)
    played.step(chunk, prefill_tokens=50, ends=(1,))
    parts = played.parts
    assert (parts["preempted"], parts["prefill_own"], parts["prefill_again"]) == (22, 20, 10)


def test_an_idle_engine_s_time_is_of_no_request() -> None:
    played = Played()
    played.step(running=0, requests_running=0)
    played.now_ns += 3600 * 10**9
    chunk = StepScheduled([1], [100], 0)
    played.step(*played.arrive(1), played.admit(1), chunk, prefill_tokens=100, ends=(1,))
    assert played.parts == {"wait_step": 1, "prefill_own": 10}


def test_chunks_that_are_not_reported_leave_the_prefill_unknown() -> None:
    played = Played()
    played.step()
    played.step(*played.arrive(1), played.admit(1), prefill_tokens=100, ends=(1,))
    assert played.parts == {"wait_step": 1, "unknown": 10}


def test_requests_from_before_a_gap_are_in_no_part() -> None:
    played = Played()
    played.step(*played.arrive(1), played.admit(1))
    played.ledger.on_gap()
    assert played.ledger.num_pending == 0
    played.step(ends=(1,))
    assert played.parts == {}
    played.step(
        *played.arrive(2), played.admit(2), StepScheduled([2], [9], 0), prefill_tokens=9, ends=(2,)
    )
    assert sum(played.parts.values()) == 11


def test_a_step_that_is_slower_than_its_work_is_slow() -> None:
    time = StepTime()
    random = Random(3)
    for _ in range(400):
        prefill, decode = random.choice([0, 0, 0, 500]), random.randint(1, 30)
        time.learn(prefill, decode, 5 * MS + 20_000 * prefill + 100_000 * decode)
    assert time.is_known
    assert time.expected_ns(500, 20) == pytest.approx(17 * MS, rel=0.01)
    assert time.prefill_ns(500) == pytest.approx(10 * MS, rel=0.01)
    for _ in range(1000):  # a disturbance of a minute hardly moves it
        time.learn(0, 10, 60 * MS)
    assert time.expected_ns(500, 20) < 30 * MS


def test_steps_without_a_rule_are_not_judged() -> None:
    time, random = StepTime(), Random(3)
    for _ in range(1000):
        time.learn(0, random.randint(1, 30), random.randint(1, 90) * MS)
    assert not time.is_known
