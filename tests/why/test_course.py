"""Slices of an engine's last half hour, and the verdict that holds over them."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kvscope_exporter.answers.diagnosis.course import SLICE_NS, Course, quantile
from kvscope_exporter.answers.diagnosis.harm import MINUTE, Harm
from kvscope_exporter.answers.diagnosis.verdict import OVER, Verdict, verdict_of
from kvscope_exporter.state import Folds
from kvscope_exporter.state.time_parts import PARTS
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
    assert course.total(1, 4, lambda sums: sums.ended) == sum(expected[1:4])


def test_a_level_holds_until_the_next_period() -> None:
    timeline = Timeline()
    timeline.add(0, NOTHING)
    timeline.add(PERIOD_NS, figures(1, waits=7))
    slices = Course(timeline, 4 * SLICE_NS).slices
    assert [each.levels.waiting for each in slices] == [7, 7, 7, 7]


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


def late(seconds: float) -> Harm:
    return Harm("prefill", 2, {"prefill": seconds, "host": 10 - seconds})


def hosts(seconds: float) -> Harm:
    return Harm("host", 2, {"host": seconds, "prefill": 10 - seconds})


def verdict(*harms: Harm | None) -> Verdict | None:
    """Each for a slice, in which its cause took a second."""
    timeline = Timeline()
    timeline.add(0, NOTHING)
    spent = [0] * len(PARTS)
    for number, harm in enumerate(harms, 1):
        if harm is not None:
            spent[PARTS.index("prefill_own" if harm.kind == "prefill" else "host")] += SLICE_NS
        timeline.add(number * SLICE_NS, NOTHING._replace(late_parts=tuple(spent)))
    return verdict_of(Course(timeline, len(harms) * SLICE_NS), lambda index: harms[index])


def test_a_verdict_holds_until_another_cause_has_led_for_a_minute() -> None:
    before = [late(9)] * 10
    held = verdict(*before, *[hosts(9)] * (MINUTE - 1))
    assert held == Verdict("prefill", 2, 0, 10 + MINUTE - 2)
    changed = verdict(*before, *[hosts(9)] * MINUTE)
    assert changed == Verdict("host", 2, 10, 10 + MINUTE - 1)


def test_causes_of_similar_weight_do_not_take_turns() -> None:
    turns = [late(5.2) if number // 9 % 2 else hosts(5.2) for number in range(90)]
    found = verdict(late(9), *turns)
    assert found is not None
    assert found.kind == "prefill"


def test_a_cause_that_leads_now_and_then_does_not_take_over() -> None:
    found = verdict(*[late(9)] * 10, *[hosts(9), late(9), hosts(9), hosts(9)] * 5)
    assert found is not None
    assert found.kind == "prefill"


def test_harm_to_requests_takes_over_from_a_loss_at_once() -> None:
    loss = Harm("cache_too_small", 1, {})
    found = verdict(*[loss] * 10, late(9))
    assert found is not None
    assert (found.kind, found.severity) == ("prefill", 2)


def test_it_is_over_after_five_minutes_without_harm() -> None:
    assert verdict(late(9), *[None] * (OVER - 1)) is not None
    found = verdict(late(9), *[None] * OVER, late(9))
    assert found is not None
    assert found.begin == OVER + 1
