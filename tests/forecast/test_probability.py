"""When the probability is known; what a gap, an idle engine and a full pool do to it."""

import math
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from benchmarks.forecast.clients import Call, Clients, Session
from benchmarks.forecast.loads import arrivals, call, chat
from benchmarks.forecast.simulator import SECOND, Machine, Simulator
from exporter.fold.exhaustion import HORIZONS, Exhaustion
from exporter.fold.exhaustion.forecast import MIN_ENDED, MIN_SECONDS
from exporter.fold.exhaustion.idleness import MAX_ERROR
from exporter.fold.exhaustion.sequences import Footprint, Sequences
from kvscope_events.events import (
    AllocationFailed,
    Batch,
    BlocksAllocated,
    BlocksReleased,
    CacheGroup,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from tests.exporter.machine import NOW_NS
from tests.exporter.page import ended, make_exporter, step, value


def calls(rate: float, seconds: float) -> Iterator[Call]:
    random = Random(9)
    for at in arrivals(random, seconds, lambda _: rate, rate):
        yield call(at, chat(random))


def stream(rate: float, seconds: float, num_blocks: int = 1_400) -> list[Batch]:
    return list(Simulator(Machine(num_blocks=num_blocks)).play(calls(rate, seconds), seconds))


@pytest.fixture(scope="module")
def busy() -> list[Batch]:
    return stream(2.0, 120)


@pytest.fixture(scope="module")
def folded(busy: list[Batch]) -> Exhaustion:
    fold = Exhaustion()
    for batch in busy:
        fold.on_batch(batch)
    return fold


def test_it_is_unknown_until_enough_has_been_seen(busy: list[Batch]) -> None:
    fold, ended = Exhaustion(), 0
    for batch in busy:
        fold.on_batch(batch)
        ended += sum(type(event) is SequenceFinished for event in batch.events)
        seconds = batch.time_ns / SECOND
        if ended < MIN_ENDED or seconds < MIN_SECONDS:
            assert not fold.probabilities()
    probabilities = fold.probabilities()
    assert tuple(probabilities) == HORIZONS
    assert list(probabilities.values()) == sorted(probabilities.values())
    assert 0 <= probabilities[10] <= probabilities[300] <= 1


def test_it_is_unknown_after_a_gap_until_those_that_ran_have_ended(busy: list[Batch]) -> None:
    fold = Exhaustion()
    half = len(busy) // 2
    for batch in busy[:half]:
        fold.on_batch(batch)
    assert fold.probabilities()
    fold.on_gap()
    unknown = 0
    for batch in busy[half + 10 :]:
        fold.on_batch(batch)
        if fold.committed_blocks is None:
            unknown += 1
            assert not fold.probabilities()
    assert unknown > 50


def test_sequences_that_wait_unseen_make_it_unknown(busy: list[Batch]) -> None:
    fold = Exhaustion()
    for batch in busy:
        fold.on_batch(batch)
    last = busy[-1]
    done = last.events[-1]
    assert type(done) is StepCompleted
    waiting = StepCompleted(**{**_fields(done), "waiting": 3})
    fold.on_batch(Batch(last.seq + 1, last.time_ns + 2 * SECOND, [waiting]))
    assert not fold.probabilities()


def test_a_pool_that_preempts_all_the_time_will_preempt() -> None:
    fold = Exhaustion()
    for batch in stream(4.0, 120):
        fold.on_batch(batch)
    probabilities = fold.probabilities()
    assert probabilities[10] > 0.8
    assert probabilities[300] > 0.8


def test_a_pool_far_too_large_is_safe() -> None:
    fold = Exhaustion()
    for batch in stream(1.0, 120, num_blocks=20_000):
        fold.on_batch(batch)
    probabilities = fold.probabilities()
    assert probabilities[60] < 0.02


@pytest.fixture(scope="module")
def stopped() -> list[Batch]:
    """16 clients that wait for their answers, on a pool too small for them, until they stop."""
    machine = Machine(num_blocks=399, step_seconds=0.015, sequence_seconds=0.0001)
    session = Session(begins=5.0, ends=95.0, clients=16, lengths=chat)
    return list(Simulator(machine).play(Clients(Random(1), [session]), 400))


def test_an_idle_engine_says_nothing_until_idleness_has_been_seen(stopped: list[Batch]) -> None:
    fold, busy = Exhaustion(), {}
    for batch in stopped:
        fold.on_batch(batch)
        if batch.time_ns < 95 * SECOND:
            busy = fold.probabilities()
    assert busy[30] > 0.8, "it ran out all the time"
    known = []
    for seconds in (0.0, 1.0, 10.0, 300.0, 1_200.0, 12_000.0):
        assert fold.seconds_to_exhaustion is None
        idle = fold.probabilities(seconds)
        known.append(len(idle))
        assert all(probability < 0.02 for probability in idle.values())
        assert list(idle.values()) == sorted(idle.values())
    assert known == sorted(known)
    assert (known[0], known[-1]) == (0, len(HORIZONS))


def test_a_pool_with_pinned_blocks_idles_like_any_other(stopped: list[Batch]) -> None:
    """Pinned blocks stay held, and say nothing about the future."""
    fold = Exhaustion()
    for batch in stopped:
        fold.on_batch(batch)
    last = fold.batch.time_ns
    fold.on_batch(Batch(0, last + SECOND, [step(active_blocks=300, running=0)]))
    assert not fold.probabilities(10.0)
    assert fold.probabilities(12_000.0)[300] < 0.02


def test_whether_an_engine_idles_is_unknown_after_a_gap_until_it_says_so(
    stopped: list[Batch],
) -> None:
    fold = Exhaustion()
    for batch in stopped:
        fold.on_batch(batch)
    assert fold.probabilities(12_000.0)
    fold.on_gap()
    now = fold.batch.time_ns + 12_000 * SECOND
    snapshot = PoolSnapshot(399, 16, 0, 0, [0] * 399, [None] * 399, [])
    fold.on_batch(Batch(0, now, [snapshot]))
    assert not fold.probabilities(12_000.0)
    fold.on_batch(Batch(1, now + SECOND, [step()]))
    assert fold.probabilities(12_000.0)


def test_a_pool_whose_load_has_stopped_calms_down_while_the_last_answers_are_written(
    stopped: list[Batch],
) -> None:
    fold, calm = Exhaustion(), None
    for batch in stopped:
        fold.on_batch(batch)
        if batch.time_ns > 97 * SECOND and 0 < fold.num_pending <= 4:
            calm = fold.probabilities()
    assert calm
    assert calm[10] < 0.3


def requests_to_an_idle_engine(random: Random, count: int) -> Iterator[Batch]:
    """One after the other, each for 10 s and 40 s apart on average; a third exhausts the pool."""
    seconds = 0.0

    def batch(later: float, *events: EngineEvent) -> Batch:
        nonlocal seconds
        seconds += later
        return Batch(0, round(seconds * SECOND), list(events))

    yield batch(0.0, PoolCreated(8, 16, 0), step())
    for number in range(count):
        came = SequenceAdded(number, number, 20, 60), BlocksAllocated(number, [0, 1], "prefill")
        busy = step(running=1, active_blocks=2, emitted=[number])
        yield batch(random.expovariate(1 / 40), *came, busy)
        yield batch(
            5.0, *([AllocationFailed(number, 1, 0)] if random.random() < 1 / 3 else []), busy
        )
        released = BlocksReleased(number, [], [0, 1], [], "finished")
        yield batch(5.0, released, ended(number, output_tokens=50), step())


def test_an_idle_engine_says_less_than_how_often_exhaustion_followed_earlier_idle_moments() -> None:
    batches = list(requests_to_an_idle_engine(Random(4), 600))
    fold = Exhaustion()
    exhausted: list[float] = []
    idle: list[int] = []
    for batch, coming in pairwise(batches):
        fold.on_batch(batch)
        now = batch.time_ns / SECOND
        exhausted += [now for event in batch.events if type(event) is AllocationFailed]
        if not fold.num_pending:
            idle += range(math.ceil(now), math.ceil(coming.time_ns / SECOND))
    fold.on_batch(batches[-1])
    last = exhausted[-1]
    said = fold.probabilities(1.0)
    assert tuple(said) == (10, 30, 60), "seven hours of idleness are too few for five minutes"
    for horizon, probability in said.items():
        judged = [at for at in idle if at < last - horizon]
        after = [exhausted[bisect_right(exhausted, at)] - at for at in judged]
        base = sum(seconds <= horizon for seconds in after) / len(judged)
        assert base - MAX_ERROR < probability < base


def test_a_request_that_finds_an_idle_engine_does_not_exhaust_it() -> None:
    """However long its first step takes: nothing runs, so nothing waits for a place."""
    fold = Exhaustion()
    for batch in stream(1.0, 80, num_blocks=5_000):
        fold.on_batch(batch)
    number = 10**6
    assert fold.probabilities()
    last = batch.time_ns
    for known in list(fold._sequences.known):
        fold.on_batch(Batch(0, last, [ended(known, output_tokens=50)]))
    fold.on_batch(Batch(0, last, [step()]))
    fold.on_batch(Batch(0, last + SECOND, [SequenceAdded(number, number, 500, 200)]))
    for seconds in (0.0, 1.5, 3.0, 4.5):
        probabilities = fold.probabilities(seconds)
        assert max(probabilities.values()) < 0.1


def test_a_pool_that_was_full_before_a_gap_is_not_full_for_ever() -> None:
    fold = Exhaustion()
    fold.on_batch(Batch(0, 0, [PoolCreated(8, 16, 0), step(active_blocks=8, running=1)]))
    assert fold.seconds_to_exhaustion == 0
    fold.on_gap()
    assert fold.seconds_to_exhaustion is None
    fold.on_batch(Batch(0, SECOND, [PoolSnapshot(8, 16, 0, 0, [1] + [0] * 7, [None] * 8, [])]))
    assert fold.seconds_to_exhaustion is None
    fold.on_batch(Batch(1, SECOND, [step(active_blocks=1)]))  # pinned: nothing runs
    assert fold.seconds_to_exhaustion is None
    assert fold.committed_blocks == 1


def test_a_new_pool_is_not_judged_by_the_sequences_of_the_former() -> None:
    fold = Exhaustion()
    taken = BlocksAllocated(1, [0, 1], "prefill")
    fold.on_batch(
        Batch(
            0,
            0,
            [
                PoolCreated(8, 16, 0),
                SequenceAdded(1, 1, 20, 60),
                taken,
                step(running=1, active_blocks=2),
            ],
        )
    )
    assert fold.committed_blocks == 5
    fold.on_batch(Batch(0, SECOND, [PoolCreated(8, 16, 0)]))
    assert fold.committed_blocks == 0


def test_it_is_computed_once_a_second_however_often_it_is_read(busy: list[Batch]) -> None:
    fold = Exhaustion()
    for batch in busy:
        fold.on_batch(batch)
    assert fold.probabilities(0.9) is fold.probabilities(0.9)


def test_a_snapshot_alone_tells_nothing_of_the_sequences() -> None:
    fold = Exhaustion()
    fold.on_batch(Batch(0, 0, [PoolSnapshot(8, 16, 0, 0, [0] * 8, [None] * 8, [])]))
    assert not fold.probabilities()


def test_tokens_are_counted_by_the_clock_as_if_one_by_one() -> None:
    sequences, footprint = Sequences(), Footprint([CacheGroup("full_attention", 16)])
    produced: dict[int, int] = {}
    for batch in stream(2.0, 60, num_blocks=20_000):  # nothing is preempted
        for event in batch.events:
            if type(event) is SequenceAdded:
                sequences.add(event.sequence, event.prompt_tokens, event.max_tokens, footprint)
            elif type(event) is StepCompleted:
                sequences.step(event)
                for number in event.emitted:
                    produced[number] = produced.get(number, 0) + 1
            elif type(event) is SequenceFinished:
                sequences.known.pop(event.sequence)
                produced.pop(event.sequence, None)
        # Those that end are gone before their last step is reported.
        for number in produced.keys() & sequences.known.keys():
            assert sequences.produced(sequences.known[number]) == produced[number]


def test_the_page_has_a_series_for_each_horizon(busy: list[Batch]) -> None:
    exporter, subscription = make_exporter(queue_batches=len(busy) + 1)
    for seq, batch in enumerate(busy):
        subscription.put(Batch(seq, batch.time_ns, batch.events, 0, NOW_NS))
    name = "kvscope_kv_exhaustion_probability"
    shown = [value(exporter, name, horizon_seconds=str(horizon)) for horizon in HORIZONS]
    assert None not in shown
    assert all(0 <= number <= 1 for number in shown if number is not None)


def _fields(event: StepCompleted) -> dict[str, object]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def test_states_of_a_sequence_take_two_blocks_at_most_however_long_it_is() -> None:
    footprint = Footprint([CacheGroup("full_attention", 16), CacheGroup("state", 16)])
    assert [footprint.blocks(tokens) for tokens in (1, 16, 17, 160, 1600)] == [2, 2, 4, 12, 102]
    assert footprint.blocks_per_token == 1 / 16


def test_states_alone_still_grow_until_they_are_there() -> None:
    footprint = Footprint([CacheGroup("state", 16)])
    assert [footprint.blocks(tokens) for tokens in (1, 17, 1600)] == [1, 2, 2]
    assert footprint.blocks_per_token > 0
