"""The chaos test can fail: each limit that is missed is named, and a time only by its median."""

from typing import Any

import pytest

from tools.chaos.beside import percentile
from tools.chaos.frame import Figures
from tools.chaos.limits import LOG_LINES, MORE_DESCRIPTORS, MORE_RSS_MIB, MORE_THREADS
from tools.chaos.report import (
    Asked,
    Baseline,
    Ending,
    Round,
    closing,
    missed,
    missed_at_the_end,
    row,
    times_missed,
)

START = Figures(rss_mib=400, descriptors=20, threads=8)
P99: dict[Asked, float] = {"health": 0.01, "completion": 0.05}
BASELINE = Baseline(p99=P99, more_p99_seconds=0.25, figures=START)
ZERO = {"kvscope_kv_blocks": 0.0}


def make_round(**changes: Any) -> Round:
    settings: dict[str, Any] = {
        **{"p99": {"health": 0.02, "completion": 0.06}, "undisturbed_p99": P99},
        **{"peak": START, "log_lines": 1},
    }
    for name in ("p99", "undisturbed_p99"):
        changes[name] = settings[name] | changes.get(name, {})
    return Round(**(settings | changes))


def make_ending(**changes: Any) -> Ending:
    settings: dict[str, Any] = {
        **{"figures": START, "gauges": ZERO, "num_compared": 9, "differing": [], "failures": []},
        "tracebacks": 0,
    }
    return Ending(**(settings | changes))


def test_nothing_is_missed_by_a_server_that_holds() -> None:
    assert missed([make_round()], BASELINE) == []
    assert missed_at_the_end(make_ending(), BASELINE) == []
    assert row("attack", [make_round()], BASELINE).endswith("held")
    assert closing(make_ending(), BASELINE).endswith("held")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"p99": {"health": 0.27}}, "p99 of health 260 ms over undisturbed, limit 250 ms"),
        ({"p99": {"completion": 4.0}}, "p99 of completion 3950 ms over undisturbed"),
        ({"p99": {"health": float("nan")}}, "health was never answered"),
        (
            {"peak": Figures(rss_mib=701, descriptors=20, threads=8)},
            "301 more MiB of memory meanwhile",
        ),
        ({"log_lines": LOG_LINES + 1}, "lines in the log"),
        ({"failures": ["health: HTTP 500"]}, "health: HTTP 500"),
        ({"broken_promise": "POST / was answered 202"}, "POST / was answered 202"),
    ],
)
def test_each_limit_of_an_attack_is_named_when_it_is_missed(
    changes: dict[str, Any], said: str
) -> None:
    found = missed([make_round(**changes)], BASELINE)
    assert len(found) == 1
    assert said in found[0]
    assert "MISSED" in row("attack", [make_round(**changes)], BASELINE)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"figures": Figures(rss_mib=400 + MORE_RSS_MIB + 1, descriptors=20, threads=8)},
            "MiB of memory",
        ),
        (
            {"figures": Figures(rss_mib=400, descriptors=21 + MORE_DESCRIPTORS, threads=8)},
            "descriptors",
        ),
        ({"figures": Figures(rss_mib=400, descriptors=20, threads=9 + MORE_THREADS)}, "threads"),
        ({"gauges": {"kvscope_kv_blocks": 3.0}}, "kvscope_kv_blocks is 3.0"),
        ({"gauges": {"kvscope_kv_blocks": None}}, "kvscope_kv_blocks is None"),
        ({"num_compared": 0}, "no reply was compared"),
        ({"differing": ["prompt 1: [2], not [3]"]}, "other tokens"),
        ({"failures": ["prompt 1: HTTP 500"]}, "no reply under attack"),
        ({"tracebacks": 2}, "2 tracebacks"),
    ],
)
def test_each_limit_at_the_end_is_named_when_it_is_missed(
    changes: dict[str, Any], said: str
) -> None:
    found = missed_at_the_end(make_ending(**changes), BASELINE)
    assert len(found) == 1
    assert said in found[0]


def test_one_slow_round_of_three_is_forgiven_and_two_are_not() -> None:
    slow, quick = make_round(p99={"health": 3.0}), make_round()
    assert times_missed([slow, quick, quick], BASELINE) == []
    assert len(times_missed([slow, quick, slow], BASELINE)) == 1


def test_a_round_is_compared_with_what_was_measured_before_it() -> None:
    busy = make_round(p99={"health": 0.5}, undisturbed_p99={"health": 0.3})
    assert times_missed([busy], BASELINE) == []


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([float(number) for number in range(1, 101)], 0.99) == 99.0
