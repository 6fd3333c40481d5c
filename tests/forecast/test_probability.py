"""When the probability is known; what a gap, an idle engine and a full pool do to it."""

from itertools import islice
from random import Random
from statistics import mean

import pytest

from benchmarks.forecast.loads import steady
from benchmarks.forecast.simulator import SECOND, Simulator
from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    CacheGroup,
    PoolCreated,
    PoolSnapshot,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state.block_demand import BlockDemand, Footprint
from kvscope_exporter.state.exhaustion import HORIZONS, Exhaustion
from kvscope_exporter.state.exhaustion.probability import MIN_SECONDS, Pool, Probability
from kvscope_exporter.state.exhaustion.sequences import Sequences
from tests.exporter.machine import NOW_NS
from tests.exporter.page import make_exporter, step, value


def stream(rate: float, seconds: float, num_blocks: int = 1_400) -> list[Batch]:
    """Load for so long, and the answers that are still being written then."""
    calls = steady(Random(9), seconds, rate)
    return list(Simulator(num_blocks).play(calls, seconds + 200))


def folded(batches: list[Batch], until: float = 1e9) -> Exhaustion:
    fold = Exhaustion()
    for batch in batches:
        if batch.time_ns < until * SECOND:
            fold.on_batch(batch)
    return fold


@pytest.fixture(scope="module")
def busy() -> list[Batch]:
    return [batch for batch in stream(2.0, 120) if batch.time_ns < 120 * SECOND]


def test_it_is_unknown_until_enough_has_been_seen(busy: list[Batch]) -> None:
    fold = Exhaustion()
    for batch in busy:
        fold.on_batch(batch)
        if batch.time_ns < MIN_SECONDS * SECOND:
            assert not fold.probabilities
    probabilities = fold.probabilities
    assert tuple(probabilities) == HORIZONS
    assert 0 <= probabilities[10] <= probabilities[30] <= probabilities[60] <= 1


def test_after_a_gap_it_is_unknown_until_a_step_says_what_runs(busy: list[Batch]) -> None:
    fold = folded(busy[:-10])
    assert fold.probabilities
    fold.on_gap()
    assert not fold.probabilities
    fold.on_batch(Batch(0, busy[-1].time_ns, [PoolSnapshot(8, 16, 0, 0, [0] * 8, [None] * 8, [])]))
    assert not fold.probabilities
    fold.on_batch(Batch(1, busy[-1].time_ns, [step(running=1, active_blocks=1)]))
    assert fold.probabilities


def test_a_pool_that_preempts_all_the_time_will_preempt() -> None:
    probabilities = folded(stream(4.0, 120), until=120).probabilities
    assert min(probabilities.values()) > 0.8


def test_a_pool_far_too_large_is_safe() -> None:
    assert folded(stream(1.0, 120, num_blocks=20_000), until=120).probabilities[60] < 0.05


def test_a_pool_whose_load_has_stopped_calms_down_while_the_last_answers_are_written() -> None:
    batches = stream(4.0, 120)
    last = next(
        batch.time_ns / SECOND
        for batch in batches
        for event in batch.events
        if batch.time_ns > 120 * SECOND and type(event) is StepCompleted and event.running < 5
    )
    assert folded(batches, until=last + 10).probabilities[10] < 0.1
    idle = folded(batches)
    assert not idle.num_pending
    assert not idle.probabilities
    assert idle.seconds_to_exhaustion is None


@pytest.mark.parametrize("share", [0.0, 0.01, 0.05])
def test_it_learns_how_often_such_a_pool_is_exhausted(share: float) -> None:
    """Whatever it thought of a pool that is always nine tenths full."""
    random, pool, probability = Random(3), Pool(0.9, 10, 0), Probability()
    said: dict[float, dict[int, float]] = {}
    exhausted: list[float] = []
    for now in map(float, range(12_000)):
        if random.random() < share:
            probability.exhausted(now)
            exhausted.append(now)
        if probability.is_due(now):
            probability.observe(now, pool)
            said[now] = probability.at(now, pool)
    late = [now for now in said if 8_000 < now < 11_900]
    for horizon in HORIZONS:
        came = mean(any(now < at <= now + horizon for at in exhausted) for now in late)
        assert mean(said[now][horizon] for now in late) == pytest.approx(came, abs=0.08)


def test_an_exhaustion_after_a_gap_is_not_the_outcome_of_a_forecast_before_it() -> None:
    pool = Pool(0.5, 10, 0)
    with_gap, without = Probability(), Probability()
    for probability in (with_gap, without):
        probability.observe(0.0, pool)
        probability.observe(5.0, pool)
    with_gap.forget()
    for probability in (with_gap, without):
        probability.exhausted(7.0)
        probability.observe(600.0, pool)
    assert with_gap.at(1_000.0, pool)[60] < without.at(1_000.0, pool)[60]


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
    came = PoolCreated(8, 16, 0), SequenceAdded(1, 1, 20, 60)
    fold.on_batch(Batch(0, 0, [*came, taken, step(running=1, active_blocks=2)]))
    assert fold.committed_blocks == 5
    fold.on_batch(Batch(0, SECOND, [PoolCreated(8, 16, 0)]))
    assert fold.committed_blocks == 0


def test_tokens_are_counted_by_the_clock_as_if_one_by_one() -> None:
    known: dict[int, BlockDemand] = {}
    sequences, footprint = Sequences(known.get), Footprint([CacheGroup("full_attention", 16)])
    produced: dict[int, int] = {}
    for batch in islice(stream(2.0, 60, num_blocks=20_000), 600):  # nothing is preempted
        for event in batch.events:
            if type(event) is SequenceAdded:
                known[event.sequence] = footprint.demand(event.prompt_tokens, event.max_tokens)
            elif type(event) is StepCompleted:
                sequences.step(event)
                for number in event.emitted:
                    produced[number] = produced.get(number, 0) + 1
            elif type(event) is SequenceFinished:
                del known[event.sequence]
                produced.pop(event.sequence, None)
        # Those that end are gone before their last step is reported.
        for number in produced.keys() & known.keys():
            assert sequences.produced(known[number]) == produced[number]


def test_the_page_has_a_series_for_each_horizon(busy: list[Batch]) -> None:
    exporter, subscription = make_exporter(queue_batches=len(busy) + 1)
    for seq, batch in enumerate(busy):
        subscription.put(Batch(seq, batch.time_ns, batch.events, 0, NOW_NS))
    name = "kvscope_kv_exhaustion_probability"
    shown = [value(exporter, name, horizon_seconds=str(horizon)) for horizon in HORIZONS]
    assert all(number is not None and 0 <= number <= 1 for number in shown)


def test_states_of_a_sequence_take_two_blocks_at_most_however_long_it_is() -> None:
    footprint = Footprint([CacheGroup("full_attention", 16), CacheGroup("state", 16)])
    assert [footprint.blocks(tokens) for tokens in (1, 16, 17, 160, 1600)] == [2, 2, 4, 12, 102]


def test_states_alone_still_grow_until_they_are_there() -> None:
    footprint = Footprint([CacheGroup("state", 16)])
    assert [footprint.blocks(tokens) for tokens in (1, 17, 1600)] == [1, 2, 2]
