"""What panels say in situations that no healthy server shows: promtool evaluates their queries."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.boards import FOLDER
from tests.alerts.tools import promtools, run
from tests.dashboards.promql import VARIABLE

pytestmark = pytest.mark.promtool

TOOL = (promtools() or ["promtool"])[0]
MACROS = {"__rate_interval": "1m", "__range": "10m"}
MINUTES = 10
"""Of history, a scrape every 15 s."""
SCRAPES = MINUTES * 4

Series = dict[str, str]
"""Selector to values, in promtool's notation."""


def query(uid: str, panel: int, ref: str = "A") -> str:
    """A panel's, with every variable at 'All'."""
    board = json.loads((FOLDER / f"{uid}.json").read_text())
    values = MACROS | {
        v["name"]: v["allValue"] for v in board["templating"]["list"] if v["type"] == "query"
    }
    found = next(p for p in board["panels"] if p["id"] == panel)
    expr = next(t["expr"] for t in found["targets"] if t["refId"] == ref)
    return VARIABLE.sub(lambda match: values[match[1] or match[2]], expr)


def check(folder: Path, series: Series, expected: dict[str, dict[str, float]]) -> None:
    """expected: query to labels to value, at the end of the history.

    To three places, because promtool compares to the last bit.
    """
    case: dict[str, Any] = {
        "interval": "15s",
        "input_series": [{"series": name, "values": v} for name, v in series.items()],
        "promql_expr_test": [
            {
                "expr": f"round({expr}, 0.001)",
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": at, "value": value} for at, value in samples.items()],
            }
            for expr, samples in expected.items()
        ],
    }
    path = folder / "situation.test.yml"
    path.write_text(yaml.safe_dump({"tests": [case]}))
    run(TOOL, "test", "rules", str(path))


def vllm(server: str, *, steps: int, running: int, engine: str = ',engine="0"') -> Series:
    """steps: with output, in the time between two scrapes."""
    labels = f'{{job="vllm",instance="{server}",model_name="m"{engine}}}'
    return {
        f"vllm:num_requests_running{labels}": f"{running}x{SCRAPES}",
        f"vllm:num_requests_waiting{labels}": f"0x{SCRAPES}",
        f"vllm:iteration_tokens_total_count{labels}": f"7+{steps}x{SCRAPES}",
    }


HANGING = query("kvscope-vllm", 107)


@pytest.mark.parametrize(
    ("steps", "running", "hanging"),
    [(0, 3, 1), (5, 3, 0), (0, 0, 0)],
    ids=["hangs", "works", "idle"],
)
def test_an_engine_hangs_that_has_work_and_makes_no_steps(
    steps: int, running: int, hanging: int, tmp_path: Path
) -> None:
    series = vllm("a", steps=steps, running=running)
    check(tmp_path, series, {HANGING: {"{}": hanging}})


def test_a_vllm_without_the_engine_label_can_hang(tmp_path: Path) -> None:
    check(tmp_path, vllm("a", steps=0, running=1, engine=""), {HANGING: {"{}": 1}})


def test_tokens_tell_of_a_hang_where_steps_are_not_counted(tmp_path: Path) -> None:
    series = {
        name.replace("iteration_tokens_total_count", f"{kind}_tokens_total"): values
        for kind in ("prompt", "generation")
        for name, values in vllm("a", steps=0, running=1).items()
    }
    check(tmp_path, series, {HANGING: {"{}": 1}})


def test_whether_an_engine_hangs_is_unknown_without_any_of_them(tmp_path: Path) -> None:
    series = vllm("a", steps=0, running=1)
    only = {name: values for name, values in series.items() if "iteration" not in name}
    check(tmp_path, only, {HANGING: {}})


def test_gaps_of_old_and_new_servers_make_one_quantile(tmp_path: Path) -> None:
    names = {"new": "inter_token_latency", "old": "time_per_output_token"}
    series = {
        f'vllm:{name}_seconds_bucket{{instance="{server}",model_name="m",le="{bound}"}}': values
        for server, name in names.items()
        for bound, values in {
            "0.1": f"0+{4 if server == 'new' else 0}x{SCRAPES}",
            "0.2": f"0+4x{SCRAPES}",
            "+Inf": f"0+4x{SCRAPES}",
        }.items()
    }
    check(tmp_path, series, {query("kvscope-vllm", 402, "A"): {"{}": 0.1}})


MISSED = {"cold": 10, "evicted": 23, "unreachable": 0, "partial": 7}
"""Blocks in the time between two scrapes, of 100 asked for; the rest hits."""


def prefix_cache(server: str, *, forgets: bool) -> Series:
    """forgets: from half of the time on the exporter has seen more names than it remembers."""
    labels = f'job="kvscope",instance="{server}",model_name="m",engine="0"'
    half = SCRAPES // 2
    lost = f" stale _x{half - 2}"
    name = "kvscope_prefix_cache"
    return {
        f'{name}_queried_blocks_total{{phase="first",{labels}}}': f"0+100x{SCRAPES}",
        f'{name}_hit_blocks_total{{phase="first",{labels}}}': f"0+60x{SCRAPES}",
        **{
            f'{name}_missed_blocks_total{{cause="{cause}",{labels}}}': (
                f"0+{blocks}x{half}" + lost
                if forgets and cause in ("cold", "evicted")
                else f"0+{blocks}x{SCRAPES}"
            )
            for cause, blocks in MISSED.items()
        },
    }


EVICTED, COLD = query("kvscope-prefix-cache", 103), query("kvscope-prefix-cache", 104)


def test_misses_are_unknown_of_an_engine_that_forgot_what_it_saw(tmp_path: Path) -> None:
    check(tmp_path, prefix_cache("a", forgets=True), {EVICTED: {}, COLD: {}})


def test_misses_are_shares_of_the_engines_that_can_tell(tmp_path: Path) -> None:
    series = prefix_cache("a", forgets=True) | prefix_cache("b", forgets=False)
    check(tmp_path, series, {EVICTED: {"{}": 0.23}, COLD: {"{}": 0.1}})


def test_the_blocks_asked_for_add_up_when_a_cause_is_unknown(tmp_path: Path) -> None:
    hit, causes, unknown = (query("kvscope-prefix-cache", 201, ref) for ref in "ABC")
    series = prefix_cache("a", forgets=True)
    known = {'{cause="partial"}': 0.07, '{cause="unreachable"}': 0.0}
    check(tmp_path, series, {hit: {"{}": 0.6}, causes: known, unknown: {"{}": 0.33}})
