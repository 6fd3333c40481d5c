"""Outcomes of idleness, judged when its horizon has passed; lengths of silences."""

import math
from collections.abc import Iterable, Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.fold.exhaustion.horizons import HORIZONS
from exporter.fold.exhaustion.idleness import MAX_ERROR, Idleness
from exporter.fold.exhaustion.silence import Silence

SOON, _, _, LATE = HORIZONS


def play(
    idleness: Idleness, stretches: Iterable[tuple[float, float, bool]], begins: float = 0.0
) -> float:
    """Stretches of idleness and of work; whether work exhausts the pool, half way. Returns now."""
    now = begins
    for idle, busy, exhausted in stretches:
        idleness.begins(now)
        idleness.ends(now + idle)
        if exhausted:
            idleness.happened(now + idle + busy / 2)
        now += idle + busy
        idleness.judge(now)
    idleness.judge(now + LATE)
    return now + LATE


def nights(random: Random, share: float, stretches: int) -> Iterator[tuple[float, float, bool]]:
    """Idle for five minutes on average; that share of what comes then exhausts the pool at once."""
    for _ in range(stretches):
        yield random.expovariate(1 / 300), 1.0, random.random() < share


def test_until_idleness_has_been_seen_long_enough_nothing_is_said_of_it() -> None:
    idleness = Idleness()
    idleness.begins(100.0)
    assert idleness.probabilities(100.0) == {}
    known = [set(idleness.probabilities(100.0 + LATE + 60.0 * n)) for n in range(200)]
    assert known == sorted(known, key=len), "what is known stays known while nothing comes"
    assert known[-1] == set(HORIZONS)
    assert any(SOON in horizons and LATE not in horizons for horizons in known)
    for horizon, probability in idleness.probabilities(12_000.0).items():
        assert 0 < probability < 0.02, horizon


def test_an_idle_engine_seldom_says_more_than_its_base_rate() -> None:
    """100 engines with histories of every length: nearly all say less."""
    for share in (0.05, 0.3, 1.0):
        said: dict[int, list[float]] = {horizon: [] for horizon in HORIZONS}
        for seed in range(100):
            idleness = Idleness()
            now = play(idleness, nights(Random(seed), share, 5 + 15 * seed))
            idleness.begins(now)
            for horizon, probability in idleness.probabilities(now).items():
                said[horizon].append(probability)
        for horizon, values in said.items():
            # Causes of exhaustion come at random, once in 300 / share seconds.
            base = -math.expm1(-horizon * share / 300)
            assert len(values) > 30
            assert sum(value > base for value in values) <= 0.05 * len(values)
            assert base - MAX_ERROR < sum(values) / len(values) < base


def test_an_idle_engine_comes_to_say_its_base_rate() -> None:
    idleness = Idleness()
    now = play(idleness, nights(Random(3), 0.5, 2_000))
    idleness.begins(now)
    for horizon, probability in idleness.probabilities(now).items():
        base = -math.expm1(-horizon * 0.5 / 300)
        assert base - MAX_ERROR < probability <= base


@given(
    stretches=st.lists(
        st.tuples(st.floats(0.5, 200), st.floats(0.5, 200), st.booleans()), min_size=1, max_size=20
    ),
    future=st.booleans(),
)
def test_nothing_is_learnt_before_the_horizon_has_passed(
    stretches: list[tuple[float, float, bool]], future: bool
) -> None:
    """Two streams that differ only within a horizon of the last stretch say the same until then."""
    answers = []
    for last in (future, not future):
        idleness = Idleness()
        now = play(idleness, [(20_000.0, 1.0, False), *stretches])
        idleness.begins(now)
        idleness.ends(now + 10)
        if last:
            idleness.happened(now + 11)
        idleness.judge(now + 12)
        idleness.begins(now + 12)
        answers.append(idleness.probabilities(now + 20))
        said = list(answers[-1].values())
        assert said == sorted(said)
        assert all(0 < value < 1 for value in said)
    assert answers[0] == answers[1]


def test_what_was_pending_when_batches_were_lost_teaches_nothing() -> None:
    lost, whole = Idleness(), Idleness()
    for idleness in (lost, whole):
        play(idleness, [(20_000.0, 1.0, False)])
        idleness.begins(30_000.0)
        idleness.ends(40_000.0)
        idleness.happened(40_001.0)
    lost.forget()
    answers = []
    for idleness in (lost, whole):
        idleness.judge(41_000.0)
        assert idleness.probabilities(41_000.0) == {}, "it does not idle, or since when is unknown"
        idleness.begins(41_000.0)
        answers.append(idleness.probabilities(41_000.0)[LATE])
    assert answers[0] < answers[1]


def test_a_load_that_has_stopped_is_told_from_one_that_goes_on_within_seconds() -> None:
    """4 a second for two minutes, and then nothing for three seconds."""
    random, silence, now = Random(7), Silence(), 0.0
    while now < 120:
        now += random.expovariate(4.0)
        silence.came(now)
    hazards = silence.hazards(now + 0.2)
    assert hazards.now(0.2) == pytest.approx(4.0, rel=0.5)
    assert hazards.within(0.2, 1.0) > 0.9
    hazards = silence.hazards(now + 3)
    assert hazards.within(3.0, 1.0) < 0.5
    assert silence.hazards(now + 60).within(60.0, 10.0) < 0.1


def test_requests_that_come_every_three_seconds_are_expected_then() -> None:
    silence = Silence()
    for tick in range(100):
        for at in range(5):  # a crowd, within half a second
            silence.came(3.0 * tick + at / 10)
    now = 3.0 * 99 + 0.4
    hazards = silence.hazards(now + 1)
    assert hazards.within(1.0, 0.5) < 0.1
    assert hazards.within(2.0, 2.0) > 0.8


def test_a_silence_of_unknown_length_is_none() -> None:
    silence = Silence()
    silence.came(5.0)
    assert silence.seconds(8.0) == 3.0
    silence.restart()
    assert silence.seconds(9.0) == 0.0
