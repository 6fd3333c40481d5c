"""Queries whose results people act on, evaluated on made-up series through promtool."""

import re
from pathlib import Path

import pytest

from dashboards.generate import BOARDS
from dashboards.kit.queries import every_part
from kvscope_alerts.objectives import Objectives
from kvscope_alerts.slo import ERRORS, slo_groups
from kvscope_alerts.timing import Timing
from tests.dashboards.evaluate import board, check, query
from tests.dashboards.promql import panels_of

SICK, WELL = (f'model_name="{m}",instance="{m}:8000",engine="0",job="kvscope"' for m in "ab")
CARD_1, CARD_2 = (f'gpu="{i}",uuid="GPU-{i}",job="kvscope"' for i in "12")
SERVERS = {f'kvscope_source_up{{source="inprocess",{who}}}': "1x200" for who in (SICK, WELL)}


def finished(who: str, **values: str) -> dict[str, str]:
    """Ends and refusals by reason; those not named are at 0."""
    ends = {reason: values.pop(reason, "0x200") for reason in ("stop", "length", "abort", "error")}
    refusals = {r: values.pop(r, "0x200") for r in ("queue_full", "invalid", "engine_dead")}
    return {
        f'kvscope_requests_{kind}_total{{reason="{reason}",{who}}}': added
        for kind, reasons in (("finished", ends), ("rejected", refusals))
        for reason, added in reasons.items()
    }


@pytest.mark.promtool
def test_one_sick_engine_is_not_averaged_away(tmp_path: Path) -> None:
    buckets = "kvscope_time_to_first_token_seconds_bucket"
    again, steps = "kvscope_preemption_recomputed_tokens_total", "kvscope_step_tokens_total"
    series = {
        **finished(SICK, stop="0+2x200", error="0+1x200", queue_full="0+1x200"),
        **finished(WELL, stop="0+1000x200"),
        **{f'{buckets}{{le="{le}",{WELL}}}': "0+1000x200" for le in ("2.5", "5", "+Inf")},
        f'{buckets}{{le="2.5",{SICK}}}': "0x200",
        **{f'{buckets}{{le="{le}",{SICK}}}': "0+1x200" for le in ("5", "+Inf")},
        **{
            f"{buckets.removesuffix('_bucket')}_count{{{who}}}": f"0+{n}x200"
            for who, n in ((SICK, 1), (WELL, 1000))
        },
        f"{again}{{{SICK}}}": "0+50x200",
        f"{again}{{{WELL}}}": "0x200",
        **{f'{steps}{{phase="decode",{who}}}': "0+100x200" for who in (SICK, WELL)},
    }
    answers = {
        **{(104, "C"): 0.5, (104, "D"): 0.5, (105, "C"): 1.0, (105, "D"): 4.875},
        (107, "A"): 0.5,
    }
    check(tmp_path, series, {query("overview", *n): {"{}": v} for n, v in answers.items()})


@pytest.mark.promtool
def test_what_clients_caused_is_not_an_error(tmp_path: Path) -> None:
    series = finished(SICK, stop="0+1x200", abort="0+9x200", invalid="0+9x200")
    check(tmp_path, series, {query("overview", 104): {"{}": 0}})


def test_the_error_ratio_counts_what_the_service_level_counts() -> None:
    pattern = re.compile(r'kvscope_requests_(\w+)_total\{reason=~?"([\w|]+)"')
    every = [rule for group in slo_groups(Timing(), Objectives()) for rule in group.rules]
    recorded = [f"model:{ERRORS.metric}_{kind}:rate5m" for kind in ("bad", "judged")]
    rules = [rule for rule in every if getattr(rule, "record", "") in recorded]
    assert len(rules) == 2
    judged = {found for rule in rules for found in pattern.findall(rule.expr)}
    assert set(pattern.findall(query("overview", 104))) == judged


@pytest.mark.promtool
@pytest.mark.parametrize(
    ("at", "shown"),
    [("3600s", 0), ("3640s", 0), ("3670s", 3670)],
    ids=["idle", "in its first prompt", "hangs"],
)
def test_the_first_step_after_an_idle_hour_does_not_look_like_a_hang(
    tmp_path: Path, at: str, shown: int
) -> None:
    """A request from 3605 s on; the last step was at 0."""
    series = {
        f"kvscope_last_step_age_seconds{{{SICK}}}": "0+5x800",
        f'kvscope_requests{{state="running",{SICK}}}': "0x720 1x80",
        f'kvscope_requests{{state="waiting",{SICK}}}': "0x800",
        f"kvscope_source_up{{{SICK}}}": "1x800",
    }
    check(tmp_path, series, {query("overview", 103): {"{}": shown}}, at=at)


@pytest.mark.promtool
def test_a_busy_engine_that_stops_stepping_hangs_at_once(tmp_path: Path) -> None:
    series = {
        f"kvscope_last_step_age_seconds{{{SICK}}}": "0x99 0+5x100",
        f'kvscope_requests{{state="running",{SICK}}}': "3x200",
    }
    check(tmp_path, series, {query("overview", 103): {"{}": 15}}, at="515s")


@pytest.mark.promtool
def test_gpus_are_those_of_servers_that_serve_the_model(tmp_path: Path) -> None:
    headroom, peak = "kvscope_gpu_memory_headroom_bytes", "kvscope_gpu_activation_peak_bytes"
    series = {
        **SERVERS,
        f'{headroom}{{instance="a:8000",{CARD_1}}}': "10x200",
        f'{peak}{{instance="a:8000",{CARD_1}}}': "3x200",
        f'{headroom}{{instance="b:8000",{CARD_2}}}': "10x200",
        f'{peak}{{instance="b:8000",{CARD_2}}}': "9x200",
    }
    room = {"": 1, "a": 7, "b": 1}
    answers = {
        query("memory", 101, **({"model": model} if model else {})): {"{}": float(left)}
        for model, left in room.items()
    }
    check(tmp_path, series, answers)


def test_every_query_about_gpus_follows_the_choice_of_model() -> None:
    for uid in BOARDS:
        for panel in panels_of(board(uid.removeprefix("kvscope-"))):
            for target in panel.get("targets", []):
                if "kvscope_gpu_" in target["expr"]:
                    assert every_part() in target["expr"], f"{uid} {panel['id']} {target['refId']}"


def test_alerts_and_starts_of_other_servers_draw_no_bars() -> None:
    for uid in BOARDS:
        for annotation in board(uid.removeprefix("kvscope-"))["annotations"]["list"]:
            none = "|" if "ALERTS" in annotation["expr"] else ""  # some alerts have no server
            assert f'instance=~"$instance{none}"' in annotation["expr"]


@pytest.mark.promtool
def test_a_lost_gpu_is_one_however_many_servers_see_it(tmp_path: Path) -> None:
    both = ("a:8000", "b:8000")
    series = {
        **SERVERS,
        **{f'kvscope_gpu_up{{instance="{server}",{CARD_1}}}': "0x200" for server in both},
        **{f'kvscope_gpu_up{{instance="{server}",{CARD_2}}}': "1x200" for server in both},
    }
    check(tmp_path, series, {query("memory", 601): {"{}": 1}})


@pytest.mark.promtool
def test_a_restart_is_seen_in_the_row_of_its_engine(tmp_path: Path) -> None:
    start = "process_start_time_seconds"
    series = {**SERVERS, f'{start}{{instance="a:8000",job="kvscope"}}': "500x200"}
    check(tmp_path, series, {query("overview", 202, "I"): {f"{{{SICK}}}": 100.0}})


@pytest.mark.promtool
def test_a_server_beside_a_sidecar_is_as_old_as_its_page_says(tmp_path: Path) -> None:
    """The sidecar's own process began later."""
    series = {
        **SERVERS,
        'process_start_time_seconds{instance="a:8000",job="kvscope"}': "500x200",
        f"kvscope_server_start_time_seconds{{{SICK}}}": "300x200",
    }
    check(tmp_path, series, {query("overview", 202, "I"): {f"{{{SICK}}}": 300.0}})
