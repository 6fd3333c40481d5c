"""Slices of an engine's last half hour, and where a signal left its usual level."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_exporter.answers.diagnosis.course import SLICE_NS, Course, arrivals, quantile, waiting
from kvscope_exporter.answers.diagnosis.shift import exceeded, fallen, occurred, risen
from kvscope_exporter.state import Folds
from kvscope_exporter.state.timeline import PERIOD_NS, READ, Figures, Timeline, figures_of

NOTHING = figures_of(Folds(READ))
COUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=200)


def figures(ended: int, waits: int = 0) -> Figures:
    return NOTHING._replace(ended=ended, waiting=waits)


def course_of(counts: Sequence[int]) -> Course:
    """counts: requests that ended in each period, after a first one."""
    timeline, total = Timeline(), 0
    timeline.add(0, NOTHING)
    for number, count in enumerate(counts, 1):
        total += count
        if count:  # periods in which nothing arrives are left out
            timeline.add(number * PERIOD_NS, figures(total))
    return Course(timeline, len(counts) * PERIOD_NS)


@given(counts=COUNTS)
def test_slices_count_what_was_counted_in_their_time(counts: list[int]) -> None:
    per_slice = SLICE_NS // PERIOD_NS
    course = course_of(counts)
    assert len(course.slices) == len(counts) // per_slice
    whole = counts[len(counts) % per_slice :]
    expected = [sum(whole[n : n + per_slice]) for n in range(0, len(whole), per_slice)]
    assert [each.sums.ended for each in course.slices] == expected
    rates = [count * 1e9 / SLICE_NS for count in expected]
    assert course.values(arrivals) == pytest.approx(rates)


def test_a_level_holds_until_the_next_period() -> None:
    timeline = Timeline()
    timeline.add(0, NOTHING)
    timeline.add(PERIOD_NS, figures(1, waits=7))
    assert Course(timeline, 4 * SLICE_NS).values(waiting) == [7, 7, 7, 7]


def test_sums_of_a_new_session_are_not_subtracted_from_those_before() -> None:
    timeline = Timeline()
    timeline.add(0, NOTHING)
    timeline.add(PERIOD_NS, figures(100))
    timeline.renew()
    timeline.add(2 * PERIOD_NS, figures(3))
    timeline.add(3 * PERIOD_NS, figures(5))
    course = Course(timeline, SLICE_NS)
    assert course.restarts_ns == [2 * PERIOD_NS]
    assert [each.sums.ended for each in course.slices] == [102]


@given(counts=st.lists(st.integers(0, 9), min_size=4, max_size=4), share=st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_that_holds_it(counts: list[int], share: float) -> None:
    bounds = (1.0, 2.0, 4.0, float("inf"))
    found = quantile(counts, bounds, share)
    if not sum(counts):
        assert found is None
        return
    assert found is not None
    upto = [sum(counts[: number + 1]) for number in range(4)]
    place = next(number for number, total in enumerate(upto) if total >= share * sum(counts))
    assert (0.0, 1.0, 2.0, 4.0)[place] <= found <= bounds[place]


@pytest.mark.parametrize(
    ("values", "begin", "end"),
    [
        ([1] * 8 + [5] * 4, 8, 12),
        ([1] * 8 + [5, 1, 5, 5], 8, 12),  # a pause of one slice
        ([5, 5, 1, 1, 1, 1, 1, 1, 1, 1, 5, 5], 10, 12),  # two stretches: the last
        ([1] * 4 + [5] * 8, 4, 12),  # two thirds of all that is known
    ],
)
def test_a_rise_is_its_last_stretch(values: list[float], begin: int, end: int) -> None:
    shift = risen(values, ratio=2, floor=1)
    assert shift is not None
    assert (shift.begin, shift.end, shift.before, shift.during) == (begin, end, 1, 5)
    mirrored = fallen([-value for value in values], by=2)
    assert mirrored is not None
    assert (mirrored.begin, mirrored.end, mirrored.before) == (begin, end, -1)


@pytest.mark.parametrize(
    "values",
    [
        [1.0] * 12,
        [1.0] * 11 + [5.0],  # a single slice
        [5.0] * 4,  # too little is known
        [5.0] * 12,  # usual
        [1.0] * 6 + [5.0] * 4 + [1.0] * 40,  # over for long
        [None] * 12,
    ],
)
def test_it_is_no_rise(values: list[float | None]) -> None:
    assert risen(values, ratio=2, floor=1) is None


def test_what_should_not_happen_counts_from_its_number_on() -> None:
    assert occurred([0, 0, 0, 2, 1], least=4) is None
    shift = occurred([0, 0, 0, 2, 2], least=4)
    assert shift is not None
    assert (shift.begin, shift.end, shift.is_over) == (3, 5, False)


def test_a_level_may_be_exceeded_all_the_time() -> None:
    shift = exceeded([0.95] * 12, 0.9)
    assert shift is not None
    assert (shift.begin, shift.end, shift.before) == (0, 12, 0.95)
