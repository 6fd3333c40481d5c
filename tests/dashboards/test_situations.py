"""What panels say in situations that no healthy server shows: promtool evaluates their queries."""

from functools import partial
from pathlib import Path

import pytest

from tests.dashboards.evaluate import Series, query
from tests.dashboards.evaluate import check as check_every

pytestmark = pytest.mark.promtool

SCRAPES = 40
"""Of ten minutes of history."""
check = partial(check_every, every="15s")


def vllm(server: str, *, steps: int, running: int, engine: str = ',engine="0"') -> Series:
    """steps: with output, in the time between two scrapes."""
    labels = f'{{job="vllm",instance="{server}",model_name="m"{engine}}}'
    return {
        f"vllm:num_requests_running{labels}": f"{running}x{SCRAPES}",
        f"vllm:num_requests_waiting{labels}": f"0x{SCRAPES}",
        f"vllm:iteration_tokens_total_count{labels}": f"7+{steps}x{SCRAPES}",
    }


HANGING = query("vllm", 107)


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
    check(tmp_path, series, {query("vllm", 402, "A"): {"{}": 0.1}})


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


EVICTED, COLD = query("prefix-cache", 103), query("prefix-cache", 104)


def test_misses_are_unknown_of_an_engine_that_forgot_what_it_saw(tmp_path: Path) -> None:
    check(tmp_path, prefix_cache("a", forgets=True), {EVICTED: {}, COLD: {}})


def test_misses_are_shares_of_the_engines_that_can_tell(tmp_path: Path) -> None:
    series = prefix_cache("a", forgets=True) | prefix_cache("b", forgets=False)
    check(tmp_path, series, {EVICTED: {"{}": 0.23}, COLD: {"{}": 0.1}})


def test_the_blocks_asked_for_add_up_when_a_cause_is_unknown(tmp_path: Path) -> None:
    hit, causes, unknown = (query("prefix-cache", 201, ref) for ref in "ABC")
    series = prefix_cache("a", forgets=True)
    known = {'{cause="partial"}': 0.07, '{cause="unreachable"}': 0.0}
    check(tmp_path, series, {hit: {"{}": 0.6}, causes: known, unknown: {"{}": 0.33}})
