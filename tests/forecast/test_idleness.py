"""What followed idleness, judged when its horizon has passed; how long a silence lasts."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.fold.exhaustion.idleness import Idleness
from exporter.fold.exhaustion.silence import Silence

FIRST = 0.01


def test_the_first_guess_stands_until_an_idle_stretch_has_ended() -> None:
    idleness = Idleness(60, FIRST)
    idleness.begins(100.0)
    assert idleness.probability(100.0) == pytest.approx(FIRST)
    assert idleness.probability(150.0) == pytest.approx(FIRST)
    assert 0 < idleness.probability(10_000.0) < FIRST, "nothing followed hours of idleness"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_an_idle_engine_says_how_often_exhaustion_followed(share: float) -> None:
    """At its end: 400 stretches of 30 s, and exhaustion 5 s after so many of them."""
    random, idleness = Random(3), Idleness(10, FIRST)
    for number in range(400):
        begins = 300.0 * number
        idleness.begins(begins)
        idleness.ends(begins + 30)
        if random.random() < share:
            idleness.happened(begins + 35)
        idleness.judge(begins + 290)
    idleness.begins(300.0 * 400)
    # Of the moments from 10 s to 30 s, which are alike, those from 25 s on are within 10 s of it.
    assert idleness.probability(300.0 * 400 + 28) == pytest.approx(share / 4, abs=0.06)
    assert idleness.probability(300.0 * 400 + 1) < 0.05


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
        idleness, now = Idleness(300, FIRST), 0.0
        for idle, busy, exhausted in stretches:
            idleness.begins(now)
            idleness.ends(now + idle)
            if exhausted:
                idleness.happened(now + idle + busy / 2)
            now += idle + busy
            idleness.judge(now)
        now += 300
        idleness.judge(now)
        idleness.begins(now)
        idleness.ends(now + 10)
        if last:
            idleness.happened(now + 11)
        idleness.judge(now + 12)
        idleness.begins(now + 12)
        answers.append(idleness.probability(now + 20))
        assert 0 <= answers[-1] <= 1
    assert answers[0] == answers[1]


def test_what_was_pending_when_batches_were_lost_teaches_nothing() -> None:
    idleness = Idleness(10, FIRST)
    idleness.begins(0.0)
    idleness.ends(20.0)
    idleness.happened(21.0)
    idleness.forget()
    idleness.judge(100.0)
    assert not idleness.is_known
    idleness.begins(100.0)
    assert idleness.probability(100.0) == pytest.approx(FIRST)


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
