"""Rates, ratios and quantiles of successive readings, and the following of a place."""

import pytest

from kvscope.top.course import MAX_VALUES, History, Values, latest
from kvscope.top.follower import MAX_PAUSE_SECONDS, Follower
from kvscope.top.reading import EngineReading
from tests.top.staged import Written, reading_of, seen_of

LABELS = 'engine="0",model_name="m"'


def reading(
    at: float, decoded: float = 0.0, hit: float = 0.0, queried: float = 0.0
) -> EngineReading:
    page = f"""\
kvscope_step_tokens_total{{{LABELS},phase="decode"}} {decoded}
kvscope_prefix_cache_hit_tokens_total{{{LABELS},phase="first"}} {hit}
kvscope_prefix_cache_queried_tokens_total{{{LABELS},phase="first"}} {queried}
kvscope_requests{{{LABELS},state="waiting"}} 4
"""
    return reading_of(page, at).engines[0]


def followed(*readings: EngineReading) -> Values:
    course = History()
    for one in readings:
        course.add(one)
    return course.values()


DECODED = "decoded_tokens_per_second"


@pytest.mark.parametrize(
    ("decoded", "rates"),
    [
        ([(10, 100), (12, 160)], (None, 30)),
        # A restart gives no rate, and then goes on.
        ([(1, 500), (2, 600), (3, 10), (4, 30)], (None, 100, None, 20)),
        # A pause adds nothing, and a recording that goes back begins again.
        ([(1, 10), (2, 20), (3, 30), (3, 30), (3, 30)], (None, 10, 10)),
        ([(1, 10), (2, 20), (3, 30), (2, 20)], (None,)),
    ],
)
def test_a_rate_is_the_difference_of_two_readings(
    decoded: list[tuple[float, float]], rates: tuple[float | None, ...]
) -> None:
    values = followed(*(reading(at, decoded=tokens) for at, tokens in decoded))
    assert values[DECODED] == rates
    assert latest(values, "waiting") == 4
    assert latest(values, "active_ratio") is None
    assert latest(values, "hit_ratio") is None, "nothing was looked up"


def test_a_hit_rate_is_that_of_the_last_minute() -> None:
    # The first minute finds nothing, the second everything.
    readings = [reading(at, hit=max(0, at - 60), queried=at) for at in range(0, 130, 10)]
    assert latest(followed(*readings), "hit_ratio") == 1.0
    later = followed(*readings, reading(130, hit=70, queried=140))
    assert latest(later, "hit_ratio") == pytest.approx(60 / 70)


def test_it_is_bounded() -> None:
    values = followed(*(reading(float(at), decoded=at) for at in range(2000)))
    assert len(values["waiting"]) == MAX_VALUES


def test_the_first_token_is_a_quantile_of_the_last_minute() -> None:
    readings = []
    for at, fast, slow in ((0, 100, 0), (30, 100, 100)):
        page = "".join(
            f'kvscope_time_to_first_token_seconds_bucket{{{LABELS},le="{le}"}} {count}\n'
            for le, count in (("0.5", fast), ("1.0", fast + slow), ("+Inf", fast + slow))
        )
        readings.append(reading_of(page, at).engines[0])
    # The hundred that came since were between 0.5 and 1 s.
    assert latest(followed(*readings), "time_to_first_token_p95_seconds") == pytest.approx(0.975)


def test_a_silent_place_keeps_its_readings_and_is_asked_ever_more_rarely() -> None:
    good = [reading_of(f"kvscope_kv_active_ratio{{{LABELS}}} 0.5\n")]
    follower = Follower(Written(good, *["refused"] * 12, good), 2.0)
    follower.step()
    assert follower.pause() == 2.0
    pauses, since = [], set()
    for _ in range(12):
        follower.step()
        pauses.append(follower.pause())
        since.add(follower.seen.since)
        assert follower.seen.problem == "refused"
        assert follower.seen.servers == good
    assert pauses[:4] == [2.0, 4.0, 8.0, MAX_PAUSE_SECONDS]
    assert set(pauses[3:]) == {MAX_PAUSE_SECONDS}
    assert len(since) == 1
    follower.step()
    assert follower.seen.problem is None
    assert follower.seen.returned is not None
    assert "back since" in follower.seen.returned
    assert follower.pause() == 2.0


def test_what_comes_back_with_other_counters_has_no_rate_of_both() -> None:
    before, after = (
        [reading_of(f'kvscope_step_tokens_total{{{LABELS},phase="decode"}} {tokens}\n', at)]
        for tokens, at in ((900, 10.0), (5, 60.0))
    )
    seen = seen_of(before, "refused", after)
    (values,) = seen.courses.values()
    assert values[DECODED] == (None, None)


def test_a_bug_in_a_source_is_a_problem_and_not_the_end() -> None:
    good = [reading_of(f"kvscope_kv_active_ratio{{{LABELS}}} 0.5\n")]
    follower = Follower(Written(), 2.0)
    follower.step()
    assert follower.seen.problem == "it failed here, a bug: IndexError: list index out of range"
    follower.source = Written(good)
    follower.step()
    assert follower.seen.servers == good
