"""One failure, one promise: tiles, lines and tables judge by the objectives of the alerts."""

from pathlib import Path
from typing import Any

import pytest

from dashboards.generate import BOARDS
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import OPEN_ROWS
from dashboards.kit.levels import TOKEN_GAP, broken, used
from dashboards.kit.queries import BY_ENGINE, TILE_WINDOW
from kvscope_alerts.objectives import Objectives
from kvscope_alerts.slo import ERRORS, ITL, PACES, TTFT, Slo, slo_groups
from kvscope_alerts.timing import Timing
from tests.dashboards.evaluate import Series, board, check, filled, query
from tests.dashboards.promql import panels_of

WHO = 'model_name="m",instance="s",engine="0",job="kvscope"'
FIRST, GAVE_UP = "kvscope_time_to_first_token_seconds", "kvscope_request_abandoned_seconds"
SCRAPES = 200


def traffic(late: int, gave_up: int = 0, failed: int = 0, gaps_late: int = 0) -> Series:
    """A hundred first tokens, ends and gaps between two scrapes."""
    return {
        f'{FIRST}_bucket{{le="2.5",{WHO}}}': f"0+{100 - late}x{SCRAPES}",
        f"{FIRST}_count{{{WHO}}}": f"0+100x{SCRAPES}",
        f'{GAVE_UP}_bucket{{le="2.5",{WHO}}}': f"0x{SCRAPES}",
        f"{GAVE_UP}_count{{{WHO}}}": f"0+{gave_up}x{SCRAPES}",
        f'{TOKEN_GAP}_bucket{{le="0.5",{WHO}}}': f"0+{100 - gaps_late}x{SCRAPES}",
        f"{TOKEN_GAP}_count{{{WHO}}}": f"0+100x{SCRAPES}",
        f'kvscope_requests_finished_total{{reason="stop",{WHO}}}': f"0+{100 - failed}x{SCRAPES}",
        f'kvscope_requests_finished_total{{reason="error",{WHO}}}': f"0+{failed}x{SCRAPES}",
    }


def recorded(slo: Slo) -> str:
    """The share over five minutes by which the alert judges, without recording it."""
    rules = [rule for group in slo_groups(Timing(), Objectives()) for rule in group.rules]
    exprs = {rule.record: rule.expr for rule in rules if hasattr(rule, "record")}
    judged, bad = (f"model:{slo.metric}_{kind}:rate5m" for kind in ("judged", "bad"))
    missed = exprs[bad].replace(judged, f"({exprs[judged]})")
    return f"({missed}) / ({exprs[judged]})"


@pytest.mark.promtool
@pytest.mark.parametrize(
    ("slo", "promise", "share"),
    [(TTFT, "first token", 0.2), (ITL, "next token", 0.3), (ERRORS, "answered", 0.05)],
)
def test_a_tile_counts_what_its_alert_counts(
    slo: Slo, promise: str, share: float, tmp_path: Path
) -> None:
    """Those that gave up after the limit included: 20 of 125 late, and 5 of 105 gone."""
    series = traffic(late=5 + 11, gave_up=5, failed=5, gaps_late=30)
    answer = {'{model_name="m"}': share}
    check(tmp_path, series, {recorded(slo): answer, filled(broken(TILE_WINDOW)[promise]): answer})


API = 'model_name="m",instance="s",job="kvscope"'


@pytest.mark.promtool
@pytest.mark.parametrize("engine", ['engine="0",', ""], ids=["one engine", "several engines"])
@pytest.mark.parametrize(
    ("failed", "answers", "share"),
    [
        pytest.param(0, 10, 10 / 110, id="the API alone fails"),
        pytest.param(10, 10, 0.1, id="the engine fails, and the API answers so"),
        pytest.param(4, 10, 10 / 106, id="both"),
        pytest.param(10, 4, 0.1, id="in the middle of streams"),
    ],
)
def test_the_promise_counts_what_an_api_fails_before_an_engine_once(
    failed: int, answers: int, share: float, engine: str, tmp_path: Path
) -> None:
    series = traffic(late=0, failed=failed) | {
        f'kvscope_api_responses_total{{status="5xx",{engine}{API}}}': f"0+{answers}x{SCRAPES}",
        f'kvscope_api_responses_total{{status="2xx",{engine}{API}}}': f"0+100x{SCRAPES}",
    }
    share = round(share, 3)
    answer = {'{model_name="m"}': share}
    asked = {recorded(ERRORS): answer, filled(broken(TILE_WINDOW)["answered"]): answer}
    asked |= {query("overview", 104, "C"): {"{}": share}}  # red
    asked |= {query("overview", 104, "D"): {"{}": share}}  # the worst server
    check(tmp_path, series, asked)


@pytest.mark.promtool
def test_responses_count_where_a_server_does_not_say_how_requests_ended(tmp_path: Path) -> None:
    series = {
        f"kvscope_requests_finished_total{{{WHO}}}": f"0+95x{SCRAPES}",
        f'kvscope_api_responses_total{{status="2xx",{WHO}}}': f"0+95x{SCRAPES}",
        f'kvscope_api_responses_total{{status="4xx",{WHO}}}': f"0+50x{SCRAPES}",
        f'kvscope_api_responses_total{{status="5xx",{WHO}}}': f"0+5x{SCRAPES}",
    }
    check(tmp_path, series, {recorded(ERRORS): {'{model_name="m"}': 0.05}})


@pytest.mark.promtool
def test_refusals_before_an_engine_is_chosen_count_for_the_model_and_for_no_engine(
    tmp_path: Path,
) -> None:
    series = traffic(late=0) | {
        f'kvscope_requests_rejected_total{{reason="queue_full",{API}}}': f"0+25x{SCRAPES}"
    }
    by_engine = filled(broken(TILE_WINDOW, BY_ENGINE)["answered"])
    answers = {
        recorded(ERRORS): {'{model_name="m"}': 0.2},
        filled(broken(TILE_WINDOW)["answered"]): {'{model_name="m"}': 0.2},
        by_engine: {f"{{{WHO}}}": 0.0},
    }
    check(tmp_path, series, answers)


def test_a_tile_is_red_where_the_alert_pages() -> None:
    fast = PACES[0].pace
    assert limits.BURN_RATE[2][0] == max(pair.factor for pair in fast.pairs)
    assert TILE_WINDOW in {pair.short for pair in fast.pairs}
    assert limits.BURN_RATE[1][0] == 1


@pytest.mark.promtool
@pytest.mark.parametrize(
    ("late", "chosen", "colour"),
    [(0, {}, "A"), (2, {}, "B"), (20, {}, "C"), (20, {"objective": "95"}, "B")],
)
def test_a_tile_is_in_the_colour_of_the_budget_and_follows_the_variables(
    late: int, chosen: dict[str, str], colour: str, tmp_path: Path
) -> None:
    answers = {
        query(*panel, **chosen): {"{}": late / 100} if panel[2] == colour else {}
        for panel in [("overview", 105, ref) for ref in "ABC"]
    }
    check(tmp_path, traffic(late), answers)


JUDGED_BY_TIME = {"stat", "timeseries"}
OF_PROMISES = ("time_to_first_token", "inter_token_latency", "request_queue_seconds")


def _numbers(panel: dict[str, Any]) -> set[float]:
    config = panel["fieldConfig"]
    found = [config["defaults"].get("thresholds", {}).get("steps", [])]
    found += [
        change["value"]["steps"]
        for override in config["overrides"]
        for change in override["properties"]
        if change["id"] == "thresholds"
    ]
    return {step["value"] for steps in found for step in steps if step.get("value") is not None}


BUDGETS = {bound for bound, _ in (*limits.BURN_RATE, *limits.BUDGET_USED) if bound is not None}
_OTHER_FIGURES = {
    bound
    for steps in (limits.TOKENS_A_SECOND, limits.RECOMPUTED_SHARE)
    for bound, _ in steps
    if bound is not None
}
"""A pace of reading and lost work, besides a time without a limit."""
ALLOWED = BUDGETS | _OTHER_FIGURES


@pytest.mark.parametrize("uid", BOARDS)
def test_no_panel_has_a_second_limit_for_a_promise(uid: str) -> None:
    for panel in panels_of(board(uid.removeprefix("kvscope-"))):
        text = str(panel.get("targets", ""))
        if panel["type"] in JUDGED_BY_TIME and any(name in text for name in OF_PROMISES):
            others = _numbers(panel) - ALLOWED
            assert not others, f"{uid} {panel['id']} {panel['title']}: {others}"


@pytest.mark.parametrize("uid", BOARDS)
def test_all_but_the_first_rows_are_folded(uid: str) -> None:
    panels = board(uid.removeprefix("kvscope-"))["panels"]
    rows = [panel for panel in panels if panel["type"] == "row"]
    assert [bool(row.get("collapsed")) for row in rows] == [
        n >= OPEN_ROWS for n in range(len(rows))
    ]
    assert all(bool(row["panels"]) == bool(row.get("collapsed")) for row in rows)


@pytest.mark.parametrize("uid", BOARDS)
def test_no_unit_has_thousandths(uid: str) -> None:
    """`si:` writes a third of a token as 334 mtok/s, which reads as millions."""
    for panel in panels_of(board(uid.removeprefix("kvscope-"))):
        assert "si:" not in str(panel.get("fieldConfig", "")), f"{uid} {panel['id']}"


@pytest.mark.parametrize("uid", BOARDS)
def test_a_line_of_a_limit_has_the_colour_of_what_is_beyond_it(uid: str) -> None:
    """Grafana draws the line in the colour of the step that begins there."""
    for panel in panels_of(board(uid.removeprefix("kvscope-"))):
        if panel["type"] == "timeseries" and "thresholds" in panel["fieldConfig"]["defaults"]:
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert limits.GREEN not in {step["color"] for step in steps[1:]}, panel["title"]


def test_the_lower_of_two_limits_is_red_where_low_is_bad() -> None:
    lines = dict(limits.limit_lines(limits.falling(60, 300))[1:])
    assert lines == {60: limits.RED, 300: limits.ORANGE}
    assert limits.limit_lines(limits.POOL_USAGE) == limits.POOL_USAGE


def engine(name: str) -> str:
    return f'model_name="m",instance="{name}",engine="0",job="kvscope"'


@pytest.mark.promtool
def test_the_table_of_engines_says_what_is_worst_about_each(tmp_path: Path) -> None:
    codes = {name: code for code, (name, _) in limits.ENGINE_VERDICTS.items()}
    series = {
        f'up{{instance="{name}",job="kvscope"}}': f"{0 if name == 'silent' else 1}x{SCRAPES}"
        for name in codes
    }
    for name in codes:
        ends = "1x60 stale" if name == "silent" else f"1x{SCRAPES}"
        series[f"kvscope_source_up{{{engine(name)}}}"] = ends
    series |= {
        f"kvscope_engine_ready{{{engine('loading')}}}": f"0x{SCRAPES}",
        f"kvscope_requests_oldest_wait_seconds{{{engine('at risk')}}}": f"3x{SCRAPES}",
        f"kvscope_requests_oldest_wait_seconds{{{engine('OK')}}}": f"1x{SCRAPES}",
        f"kvscope_last_step_age_seconds{{{engine('stalled')}}}": f"0+15x{SCRAPES}",
        f'kvscope_requests{{state="running",{engine("stalled")}}}': f"1x{SCRAPES}",
        f"kvscope_kv_active_ratio{{{engine('pressure')}}}": f"0.97x{SCRAPES}",
        f'kvscope_requests{{state="waiting",{engine("pressure")}}}': f"2x{SCRAPES}",
        f'{FIRST}_bucket{{le="2.5",{engine("slow")}}}': f"0x{SCRAPES}",
        f"{FIRST}_count{{{engine('slow')}}}": f"0+1x{SCRAPES}",
    }
    in_front = engine("api").replace(',engine="0"', "")
    series |= {
        'up{instance="api",job="kvscope"}': f"1x{SCRAPES}",
        f"kvscope_source_up{{{engine('api')}}}": f"1x{SCRAPES}",
        f'kvscope_api_responses_total{{status="5xx",{in_front}}}': f"0+1x{SCRAPES}",
    }
    codes["api"] = codes["slow"]
    answer = {f"{{{engine(name)}}}": float(code) for name, code in codes.items()}
    check(tmp_path, series, {query("overview", 202): answer})


@pytest.mark.promtool
def test_alerts_are_one_line_each_and_know_when_the_first_began(tmp_path: Path) -> None:
    series = {}
    for server, since in (("a", 300), ("b", 200)):
        labels = f'alertname="KvscopeX",severity="warning",instance="{server}",model_name="m"'
        series[f'ALERTS{{alertstate="firing",{labels}}}'] = f"1x{SCRAPES}"
        series[f"ALERTS_FOR_STATE{{{labels}}}"] = f"{since}x{SCRAPES}"
    values = {"A": 2.0, "B": 200_000.0, "C": 2.0, "D": 2.0}
    answers = {
        query("overview", 201, ref): {'{alertname="KvscopeX"}': value}
        for ref, value in values.items()
    }
    check(tmp_path, series, answers)


@pytest.mark.promtool
@pytest.mark.parametrize(("gave_up", "colour"), [("0x200", "B"), ("0+1x200", "C")])
def test_a_card_that_is_short_of_room_is_red_only_where_steps_gave_up(
    gave_up: str, colour: str, tmp_path: Path
) -> None:
    card = 'gpu="0",uuid="GPU-0",instance="s",job="kvscope"'
    series = {
        f"kvscope_source_up{{{WHO}}}": f"1x{SCRAPES}",
        f"kvscope_gpu_memory_headroom_bytes{{{card}}}": f"2x{SCRAPES}",
        f"kvscope_gpu_activation_peak_bytes{{{card}}}": f"5x{SCRAPES}",
        f'kvscope_engine_oom_events_total{{action="gave_up",{WHO}}}': gave_up,
    }
    answers = {
        query(*panel, ref): {"{}": 3.0} if ref == colour else {}
        for panel in (("memory", 101),)
        for ref in "ABC"
    }
    check(tmp_path, series, answers)


def test_every_promise_has_a_budget() -> None:
    assert broken(TILE_WINDOW).keys() == used(TILE_WINDOW).keys()
