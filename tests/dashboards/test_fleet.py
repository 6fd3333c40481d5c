"""The dashboards with many engines: the lines drawn, and the places meant."""

import json
from pathlib import Path

import pytest

from dashboards.generate import BOARDS
from dashboards.kit.fleet import SHOWN
from dashboards.kit.panels import MEDIAN
from dashboards.kit.variables import ANSWERED, FIRST_TOKEN, IN_TIME, TOKEN_GAP
from kvscope_alerts.bare.limits import SECONDS
from kvscope_alerts.bare.server import VLLM
from kvscope_monitoring import objectives
from tests.dashboards.evaluate import Series, board, check, query
from tests.dashboards.promql import panels_of

pytestmark = pytest.mark.promtool

ACTIVE = "kvscope_kv_active_ratio"


def targets(name: str, panel: int) -> set[str]:
    """Letters of a panel's queries."""
    (found,) = (p for p in panels_of(board(name)) if p["id"] == panel)
    return {target["refId"] for target in found["targets"]}


def engine(number: int, **more: str) -> str:
    labels = {"model_name": "m", "instance": f"s{number:02}", "engine": "0", "job": "kvscope"}
    return ",".join(f'{name}="{value}"' for name, value in (labels | more).items())


def line(number: int) -> str:
    """Labels of the engine's line."""
    return f'{{model_name="m",instance="s{number:02}",engine="0",job="kvscope"}}'


def pools(engines: int) -> Series:
    """Engine n has always been at n percent, but for the last, which has just emptied."""
    values = [f"0.{number:02}x200" for number in range(engines - 1)]
    return {
        f"{ACTIVE}{{{engine(number)}}}": value
        for number, value in enumerate([*values, "0.99x118 0x82"])
    }


def test_the_fullest_of_many_are_drawn_and_the_median_of_all(tmp_path: Path) -> None:
    drawn = query("overview", 302, "A"), query("overview", 302, "B")
    shown = {line(n): n / 100 for n in range(19, 24)} | {line(24): 0.0}
    assert len(shown) == SHOWN
    check(tmp_path, pools(25), {drawn[0]: shown, drawn[1]: {"{}": 0.11}})


def test_of_few_engines_every_one_is_drawn_and_no_median(tmp_path: Path) -> None:
    drawn = query("overview", 302, "A"), query("overview", 302, "B")
    check(tmp_path, pools(2), {drawn[0]: {line(0): 0.0, line(1): 0.0}, drawn[1]: {}})


@pytest.mark.parametrize(
    ("chosen", "fullest"),
    [
        ({}, 0.9),
        ({"cluster": "east"}, 0.5),
        ({"pod": "(a-1|a-2)"}, 0.5),
        ({"namespace": "x"}, None),
    ],
    ids=["all, also without labels", "cluster", "pods", "none such"],
)
def test_places_choose_among_servers_and_need_no_labels(
    chosen: dict[str, str], fullest: float | None, tmp_path: Path
) -> None:
    series = {
        f"{ACTIVE}{{{engine(1, cluster='east', namespace='prod', pod='a-1')}}}": "0.5x200",
        f"{ACTIVE}{{{engine(2, cluster='west', namespace='prod', pod='b-1')}}}": "0.7x200",
        f"{ACTIVE}{{{engine(3)}}}": "0.9x200",
    }
    answer = {} if fullest is None else {"{}": fullest}
    check(tmp_path, series, {query("kv-pool", 101, **chosen): answer})


@pytest.mark.parametrize(
    ("waiting", "preempted", "calm", "crowded"),
    [
        ("0x200", "0x200", 0.91, None),
        ("3x200", "0x200", None, 0.91),
        ("0x200", "0+1x200", None, 0.91),
    ],
    ids=["full of work", "requests wait", "requests are preempted"],
)
def test_a_full_pool_is_orange_only_where_somebody_waits(
    waiting: str, preempted: str, calm: float | None, crowded: float | None, tmp_path: Path
) -> None:
    cause = 'mode="recompute",cause="out_of_blocks"'
    series = {
        f"{ACTIVE}{{{engine(1)}}}": "0.91x200",
        f"{ACTIVE}{{{engine(2)}}}": "0.50x200",
        f'kvscope_requests{{state="waiting",{engine(1)}}}': waiting,
        f'kvscope_requests{{state="waiting",{engine(2)}}}': "5x200",
        f"kvscope_preemptions_total{{{cause},{engine(1)}}}": preempted,
    }
    answers = {
        query(*panel, ref): {} if value is None else {"{}": value}
        for panel in (("overview", 106), ("kv-pool", 101))
        for ref, value in (("A", calm), ("B", crowded))
    }
    check(tmp_path, series, answers)


def test_a_pool_that_preempts_is_under_pressure_also_when_it_has_just_made_room(
    tmp_path: Path,
) -> None:
    """Full in one scrape of two."""
    cause = 'mode="recompute",cause="out_of_blocks"'
    series = {
        f"{ACTIVE}{{{engine(1)}}}": " ".join(["0.99 0.70"] * 100),
        f"kvscope_preemptions_total{{{cause},{engine(1)}}}": "0+1x200",
    }
    answers: dict[str, dict[str, float]] = {query("kv-pool", 101, "B"): {"{}": 0.99}}
    check(tmp_path, series, answers, at="10m")
    check(tmp_path, series, answers, at="10m5s")


def test_a_full_pool_has_no_time_left_though_it_no_longer_fills(tmp_path: Path) -> None:
    left = "kvscope_kv_time_to_exhaustion_seconds"
    series = {
        f"{ACTIVE}{{{engine(1)}}}": "0.96x200",
        f"{ACTIVE}{{{engine(2)}}}": "0.50x200",
        f"{left}{{{engine(2)}}}": "90x200",
    }
    check(tmp_path, series, {query("kv-pool", 802): {line(1): 0.0, line(2): 90.0}})


NO_ENGINE = [
    *(("overview", panel) for panel in (101, 102, 103, 106)),
    *(("kv-pool", panel) for panel in (101, 104)),
    *(("prefix-cache", 102), ("memory", 102), ("memory", 601), ("service-levels", 104)),
    *(("vllm", panel) for panel in (101, 102, 105, 107)),
]


@pytest.mark.parametrize(("name", "panel"), NO_ENGINE)
def test_a_fleet_that_is_not_there_is_not_green(name: str, panel: int, tmp_path: Path) -> None:
    series = {'up{instance="other",job="node"}': "1x200"}
    refs = [ref for ref in "ABC" if ref in targets(name, panel)]
    check(tmp_path, series, {query(name, panel, ref): {} for ref in refs})


def test_alerts_are_counted_by_severity(tmp_path: Path) -> None:
    series = {
        f'ALERTS{{alertstate="firing",alertname="Kvscope{n}",severity="{severity}"}}': "1x200"
        for n, severity in enumerate(["warning", "warning", "info"])
    }
    answers = {query("overview", 101, ref): {} for ref in "A"}
    check(tmp_path, series, answers)
    series['ALERTS{alertstate="firing",alertname="KvscopeWatchdog",severity="none"}'] = "1x200"
    answers = {query("overview", 101, ref): {"{}": n} for ref, n in (("A", 0), ("B", 2), ("C", 1))}
    check(tmp_path, series, answers)


def starts() -> str:
    """The expression of the annotation, with every variable at All."""
    (expr,) = (a["expr"] for a in board("overview")["annotations"]["list"] if a["name"] == "Starts")
    for name in ("cluster", "namespace", "pod", "model", "instance", "engine"):
        expr = expr.replace(f"${name}", ".*")
    return str(expr)


@pytest.mark.parametrize(("at", "marked"), [("9m", False), ("10m30s", True), ("12m", False)])
def test_a_restart_is_marked_for_a_minute(at: str, marked: bool, tmp_path: Path) -> None:
    server = 'instance="s01",job="kvscope"'
    series = {
        f"kvscope_source_up{{{engine(1)}}}": "1x300",
        f"process_start_time_seconds{{{server}}}": "0x119 600x181",
        'process_start_time_seconds{instance="other",job="node"}': "600x300",
    }
    answer = {'{model_name="m"}': 1.0} if marked else {}
    check(tmp_path, series, {starts(): answer}, at=at)


def levels(late: int, failed: int) -> Series:
    """Outcomes of a hundred requests in each interval."""
    first, gap = "kvscope_time_to_first_token_seconds", "kvscope_inter_token_latency_seconds"
    return {
        f'{first}_bucket{{le="2.5",{engine(1)}}}': f"0+{100 - late}x200",
        f"{first}_count{{{engine(1)}}}": "0+100x200",
        f'{gap}_bucket{{le="0.5",{engine(1)}}}': "0+100x200",
        f"{gap}_count{{{engine(1)}}}": "0+100x200",
        **{
            f'kvscope_requests_finished_total{{reason="{reason}",{engine(1)}}}': f"0+{count}x200"
            for reason, count in (("stop", 100 - failed), ("error", failed))
        },
    }


@pytest.mark.parametrize(
    ("objective", "answered", "used"),
    [("99", "99.9", (20.0, 4.0)), ("99.5", "99", (2.0, 8.0))],
)
def test_the_budget_is_what_was_promised(
    objective: str, answered: str, used: tuple[float, float], tmp_path: Path
) -> None:
    chosen = {"objective": objective, "answered": answered}
    answers = {
        query("service-levels", 201, ref, **chosen): {'{model_name="m"}': value}
        for ref, value in (("C", used[0]), ("E", used[1]), ("G", 0.0))
    }
    answers[query("service-levels", 204, **chosen)] = {'{model_name="m"}': 0.0}
    check(tmp_path, levels(late=4, failed=2), answers)


@pytest.mark.parametrize(("at", "known"), [("47h", False), ("96h", True)], ids=["too new", "known"])
def test_growth_becomes_days_until_the_pools_are_full(at: str, known: bool, tmp_path: Path) -> None:
    """A quarter of a percent more every hour: 6 % a day, 34 % at the end and 22 % on average."""
    series = {
        f'kvscope_kv_blocks{{state="active",{engine(1)}}}': "100+2.5x100",
        f"kvscope_kv_usable_blocks{{{engine(1)}}}": "1000x100",
        f"kvscope_engine_ready{{{engine(1)}}}": "1x100",
    }
    growth, left = (query("service-levels", 301, ref) for ref in "DE")
    answers = {
        f"round({growth}, 0.001)": {'{model_name="m"}': 0.06} if known else {},
        f"round({left})": {'{model_name="m"}': 8.0} if known else {},
    }
    check(tmp_path, series, answers, at=at, every="1h")


def test_defaults_of_the_levels_are_those_of_the_alerts() -> None:
    assert float(FIRST_TOKEN) == objectives.TTFT_SECONDS
    assert float(TOKEN_GAP) == objectives.ITL_SECONDS
    assert float(IN_TIME) == pytest.approx(100 * objectives.TTFT_OBJECTIVE)
    assert float(IN_TIME) == pytest.approx(100 * objectives.ITL_OBJECTIVE)
    assert float(ANSWERED) == pytest.approx(100 * objectives.ERROR_OBJECTIVE)


def test_defaults_on_the_board_of_a_bare_vllm_are_those_of_its_alerts() -> None:
    listed = board("vllm")["templating"]["list"]
    variables = {v["name"]: v["current"]["value"] for v in listed if v["type"] == "custom"}
    assert float(variables["first_token"]) == SECONDS[VLLM.first_token]
    assert float(variables["next_token"]) == SECONDS[VLLM.gap]


@pytest.mark.parametrize(
    ("up", "ready", "shown"),
    [("1x200", "1x200", 0), ("1x200", "1x90 0x110", 1), ("1x50 0x150", "1x50 _x150", 1)],
    ids=["well", "loads its model again", "does not answer"],
)
def test_the_wall_counts_every_server_that_is_not_up(
    up: str, ready: str, shown: int, tmp_path: Path
) -> None:
    series = {}
    for number, (target, engine_ready) in enumerate([(up, ready), ("1x200", "1x200")]):
        labels = engine(number)
        heard = engine_ready.replace("0x", "1x")
        series[f'up{{instance="s{number:02}",job="kvscope"}}'] = target
        series[f"kvscope_engine_ready{{{labels}}}"] = engine_ready
        series[f"kvscope_source_up{{{labels}}}"] = heard
    answers = {"A": 2.0 - shown, "B": float(shown)}
    tile = {query("service-levels", 101, ref): {"{}": n} for ref, n in answers.items()}
    check(tmp_path, series, tile)


def test_the_wall_speaks_of_what_people_feel(tmp_path: Path) -> None:
    """Twenty tokens a second, a failure in fifty, one who has waited for three seconds."""
    gap = "kvscope_inter_token_latency_seconds"
    series = levels(late=0, failed=2) | {
        f"{gap}_sum{{{engine(1)}}}": "0+5x200",
        f"kvscope_requests_oldest_wait_seconds{{{engine(1)}}}": "3x200",
        f'kvscope_requests{{state="waiting",{engine(1)}}}': "4x200",
    }
    answers = {(103, "A"): 20.0, (104, "C"): 0.98, (105, "A"): 4.0, (105, "C"): 3.0}
    check(
        tmp_path,
        series,
        {
            query("service-levels", panel, ref): {"{}": value}
            for (panel, ref), value in answers.items()
        },
    )


def test_every_board_can_be_filtered_by_any_label() -> None:
    for uid in BOARDS:
        text = json.dumps(board(uid.removeprefix("kvscope-"))["templating"])
        assert '"type": "adhoc"' in text, uid


def test_the_legend_of_lines_chosen_from_many_begins_with_the_worst() -> None:
    checked = 0
    for uid in BOARDS:
        for panel in panels_of(board(uid.removeprefix("kvscope-"))):
            legends = [target["legendFormat"] for target in panel.get("targets", [])]
            if MEDIAN not in legends or panel["options"]["legend"]["displayMode"] != "table":
                continue
            legend = panel["options"]["legend"]
            lowest = any("bottomk(" in target["expr"] for target in panel["targets"])
            assert legend["sortBy"] in ("Max", "Min", "Mean"), panel["title"]
            assert legend["sortDesc"] is not lowest, panel["title"]
            checked += 1
    assert checked > 3
