"""Outcomes: judged when their horizon has passed, from no later event; what they teach."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.fold.exhaustion.correction import State
from exporter.fold.exhaustion.outcomes import Outcomes

AS_SAID = (0.0, 1.0, 0.0, 0.0, 0.0)


@given(
    came=st.lists(st.booleans(), min_size=30, max_size=120),
    said=st.floats(0.05, 0.95),
    future=st.lists(st.booleans(), min_size=1, max_size=20),
)
def test_nothing_is_learnt_from_what_has_not_happened_yet(
    came: list[bool], said: float, future: list[bool]
) -> None:
    """Two streams that differ only after now have the same forecast now."""
    answers = []
    for rest in (future, [not value for value in future]):
        outcomes = Outcomes(30, 5, AS_SAID)
        for index, happened in enumerate(came + rest):
            now = 5.0 * index
            if index == len(came):
                answers.append(outcomes.calibrated(said))
            if happened:
                outcomes.happened(now)
            outcomes.judge(now)
            outcomes.forecast(now, said)
    assert answers[0] == answers[1]


def test_a_forecast_is_not_judged_before_its_horizon_has_passed() -> None:
    outcomes = Outcomes(60, 5, AS_SAID)
    outcomes.forecast(0.0, 0.2)
    for second in range(1, 60):
        outcomes.happened(float(second))
        outcomes.judge(float(second))
    before = outcomes.calibrated(0.2)
    assert before == pytest.approx(0.2, abs=0.01)
    outcomes.judge(60.0)
    outcomes.judge(120.0)
    assert outcomes.calibrated(0.2) > before


@pytest.mark.parametrize(("said", "truth"), [(0.5, 0.2), (0.3, 0.6), (0.9, 0.9)])
def test_a_word_comes_to_mean_how_often_it_was_true(said: float, truth: float) -> None:
    random, outcomes = Random(4), Outcomes(10, 5, AS_SAID)
    for index in range(4_000):
        now = 20.0 * index
        outcomes.judge(now)
        outcomes.forecast(now, said)
        if random.random() < truth:
            outcomes.happened(now + 3)
    assert outcomes.calibrated(said) == pytest.approx(truth, abs=0.06)


def test_a_higher_word_never_means_less() -> None:
    random, outcomes = Random(5), Outcomes(10, 5, AS_SAID)
    for index in range(2_000):
        now = 20.0 * index
        outcomes.judge(now)
        said = random.random()
        outcomes.forecast(now, said)
        if random.random() < 1 - said:  # a model that is always wrong
            outcomes.happened(now + 3)
    means = [outcomes.calibrated(index / 50) for index in range(51)]
    assert means == sorted(means)
    assert 0.3 < means[25] < 0.7


def test_forecasts_that_were_open_when_batches_were_lost_teach_nothing() -> None:
    outcomes = Outcomes(30, 5, AS_SAID)
    outcomes.forecast(0.0, 0.5)
    outcomes.happened(5.0)
    outcomes.forget()
    outcomes.judge(60.0)
    assert outcomes.calibrated(0.5) == pytest.approx(0.5)


def test_a_word_means_more_where_the_pool_was_exhausted_just_now() -> None:
    """A model that knows nothing of it, and outcomes that depend on nothing else."""
    random, outcomes = Random(6), Outcomes(10, 5, AS_SAID)
    for index in range(1_000):
        now = 20.0 * index
        outcomes.judge(now)
        state = State(recently=float(random.random() < 0.5), fullness=0.0, waiting=1.0)
        outcomes.forecast(now, 0.5, state)
        if random.random() < (0.9 if state.recently else 0.2):
            outcomes.happened(now + 3)
    just_now = outcomes.calibrated(0.5, State(1.0, 0.0, 1.0))
    long_ago = outcomes.calibrated(0.5, State(0.0, 0.0, 1.0))
    assert just_now == pytest.approx(0.9, abs=0.08)
    assert long_ago == pytest.approx(0.2, abs=0.08)


def test_a_pool_that_is_exhausted_all_the_time_counts_as_exhausted_though_judged_late() -> None:
    """Judged at a tick that comes a little late, when many more exhaustions are known."""
    outcomes = Outcomes(10, 5, AS_SAID)
    for tick in range(40):
        now = 5.0 * tick + (0.1 if tick % 2 else 0.0)
        for tenth in range(50):
            outcomes.happened(now - 5 + tenth / 10)
        outcomes.judge(now)
        outcomes.forecast(now, 0.5)
    assert outcomes.calibrated(0.5) > 0.9
