"""Panels in situations that no healthy server shows: promtool evaluates their queries."""

from functools import partial
from pathlib import Path

import pytest

from tests.dashboards.evaluate import Series, query
from tests.dashboards.evaluate import check as check_every

pytestmark = pytest.mark.promtool

SCRAPES = 40
"""Scrapes in ten minutes of history."""
check = partial(check_every, every="15s")


def vllm(server: str, *, steps: int, running: int, engine: str = ',engine="0"') -> Series:
    """steps: with output, in the time between two scrapes."""
    labels = f'{{job="vllm",instance="{server}",model_name="m"{engine}}}'
    return {
        f"vllm:num_requests_running{labels}": f"{running}x{SCRAPES}",
        f"vllm:num_requests_waiting{labels}": f"0x{SCRAPES}",
        f"vllm:iteration_tokens_total_count{labels}": f"7+{steps}x{SCRAPES}",
    }


STALLED = query("vllm", 107)


@pytest.mark.parametrize(
    ("steps", "running", "stalled"),
    [(0, 3, 1), (5, 3, 0), (0, 0, 0)],
    ids=["hangs", "works", "idle"],
)
def test_an_engine_hangs_that_has_work_and_makes_no_steps(
    steps: int, running: int, stalled: int, tmp_path: Path
) -> None:
    series = vllm("a", steps=steps, running=running)
    check(tmp_path, series, {STALLED: {"{}": stalled}})


def test_a_vllm_without_the_engine_label_can_hang(tmp_path: Path) -> None:
    check(tmp_path, vllm("a", steps=0, running=1, engine=""), {STALLED: {"{}": 1}})


def test_tokens_tell_of_a_hang_where_steps_are_not_counted(tmp_path: Path) -> None:
    series = {
        name.replace("iteration_tokens_total_count", f"{kind}_tokens_total"): values
        for kind in ("prompt", "generation")
        for name, values in vllm("a", steps=0, running=1).items()
    }
    check(tmp_path, series, {STALLED: {"{}": 1}})


def test_whether_an_engine_hangs_is_unknown_without_any_of_them(tmp_path: Path) -> None:
    series = vllm("a", steps=0, running=1)
    only = {name: values for name, values in series.items() if "iteration" not in name}
    check(tmp_path, only, {STALLED: {}})


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


def test_servers_of_different_buckets_have_no_quantile_together(tmp_path: Path) -> None:
    """A bound of one server alone would hold less than a lower one, and the next one too much."""
    name = "kvscope_time_to_first_token_seconds_bucket"
    counts = {
        "vllm": {"10": 1, "20": 4, "40": 4, "+Inf": 4},
        "sglang": {"10": 1, "15": 2, "20": 4, "30": 4, "+Inf": 4},
    }
    panel = query("overview", 303, "A")

    def series(servers: dict[str, str]) -> Series:
        return {
            f'{name}{{instance="{server}",model_name="m",engine="0",le="{bound}"}}': (
                f"0+{count}x{SCRAPES}"
            )
            for server, kind in servers.items()
            for bound, count in counts[kind].items()
        }

    check(tmp_path, series({"a": "vllm", "b": "sglang"}), {panel: {}})
    check(tmp_path, series({"a": "vllm", "b": "vllm"}), {panel: {"{}": 13.333}})


BAD, WELL, IDLE = (f'job="vllm",instance="{name}"' for name in ("bad", "well", "idle"))
_MODEL = 'model_name="m",engine="0"'


def late(family: str, quick: str, slow: str) -> Series:
    """One of two busy servers is slow, and does a hundredth of the work; a third one does none."""
    series = {}
    for server, in_time, every in ((WELL, 100, 100), (BAD, 0, 1), (IDLE, 0, 0)):
        for bound, count in ((quick, in_time), (slow, every), ("+Inf", every)):
            name = f'{family}_bucket{{le="{bound}",{server},{_MODEL}}}'
            series[name] = f"0+{count}x{SCRAPES}"
        series[f"{family}_count{{{server},{_MODEL}}}"] = f"0+{every}x{SCRAPES}"
    return series


@pytest.mark.parametrize(
    ("panel", "family", "quick", "slow", "shown"),
    [
        (104, "vllm:time_to_first_token_seconds", "2.5", "5", 4.875),
        (111, "vllm:inter_token_latency_seconds", "0.2", "0.5", 0.485),
    ],
    ids=["first token", "gap"],
)
def test_one_slow_vllm_is_not_averaged_away(
    panel: int, family: str, quick: str, slow: str, shown: float, tmp_path: Path
) -> None:
    answers = {query("vllm", panel, ref): {"{}": shown} if ref == "C" else {} for ref in "ABC"}
    check(tmp_path, late(family, quick, slow), answers)


def ends(server: str, **reasons: int) -> Series:
    return {
        f'vllm:request_success_total{{finished_reason="{reason}",{server},{_MODEL}}}': values
        for reason, values in ((k, f"0+{v}x{SCRAPES}") for k, v in reasons.items())
    } | {f"vllm:num_requests_running{{{server},{_MODEL}}}": f"1x{SCRAPES}"}


def answers_of(server: str, **statuses: int) -> Series:
    labels = 'handler="/v1/completions",method="POST"'
    return {
        f'http_requests_total{{status="{status[1:]}",{labels},{server}}}': f"0+{count}x{SCRAPES}"
        for status, count in statuses.items()
    }


GREEN, ORANGE, RED = "ABC"
"""Queries of a tile, of which one has a value."""


@pytest.mark.parametrize(
    ("series", "shown", "colour"),
    [
        (ends(WELL, stop=100, abort=50, error=0), 0, GREEN),
        (ends(WELL, stop=100, error=0) | ends(BAD, stop=3, abort=9, error=1), 0.25, RED),
        (ends(WELL, stop=995, error=5), 0.005, ORANGE),
        (ends(WELL, stop=9, error=0) | answers_of(WELL, _2xx=3, _5xx=2), 0.4, RED),
        (ends(WELL, stop=9, error=0) | answers_of(WELL, _2xx=3), 0, GREEN),
        (
            ends(WELL, stop=9, error=0) | answers_of('job="other",instance="web"', _5xx=9),
            *(0, GREEN),
        ),
    ],
    ids=["aborts", "one engine", "a few", "5xx", "no 5xx yet", "another program"],
)
def test_the_share_of_errors_is_that_of_the_worst(
    series: Series, shown: float, colour: str, tmp_path: Path
) -> None:
    answers = {query("vllm", 109, ref): {"{}": shown} if ref == colour else {} for ref in "ABC"}
    check(tmp_path, series, answers)


MISSED = {"cold": 10, "evicted": 23, "unreachable": 0, "vetoed": 0, "partial": 7, "forgotten": 0}
"""Blocks in the time between two scrapes, of 100 asked for; the rest hits."""
FORGETFUL = {"cold": 2, "evicted": 3, "unreachable": 0, "vetoed": 0, "partial": 7, "forgotten": 28}
"""The same misses, when most of them are too old for the exporter to remember."""


def prefix_cache(missed: dict[str, int]) -> Series:
    labels = 'job="kvscope",instance="a",model_name="m",engine="0"'
    name = "kvscope_prefix_cache"
    return {
        f'{name}_queried_blocks_total{{phase="first",{labels}}}': f"0+100x{SCRAPES}",
        f'{name}_hit_blocks_total{{phase="first",{labels}}}': f"0+60x{SCRAPES}",
        **{
            f'{name}_missed_blocks_total{{cause="{cause}",{labels}}}': f"0+{blocks}x{SCRAPES}"
            for cause, blocks in missed.items()
        },
    }


@pytest.mark.parametrize("lost", [0, 10], ids=["all heard", "events lost"])
def test_the_blocks_asked_for_add_up(lost: int, tmp_path: Path) -> None:
    missed = FORGETFUL | {"forgotten": FORGETFUL["forgotten"] - lost}
    hit, causes, unknown = (query("prefix-cache", 201, ref) for ref in "ABC")
    known = {f'{{cause="{cause}"}}': blocks / 100 for cause, blocks in missed.items()}
    answers = {hit: {"{}": 0.6}, causes: known, unknown: {"{}": lost / 100}}
    check(tmp_path, prefix_cache(missed), answers)


@pytest.mark.parametrize(
    ("waiting", "preempted", "calm", "crowded"),
    [("0", "0", 0.99, None), ("3", "0", None, 0.99), ("0", "0+1", None, 0.99)],
    ids=["full of work", "requests wait", "requests are preempted"],
)
def test_the_full_cache_of_a_bare_vllm_is_orange_only_where_somebody_waits(
    waiting: str, preempted: str, calm: float | None, crowded: float | None, tmp_path: Path
) -> None:
    labels = f'{{{_MODEL},job="vllm",instance="a"}}'
    series = {
        f"vllm:kv_cache_usage_perc{labels}": f"0.99x{SCRAPES}",
        f"vllm:num_requests_waiting{labels}": f"{waiting}x{SCRAPES}",
        f"vllm:num_preemptions_total{labels}": f"{preempted}x{SCRAPES}",
    }
    answers = {
        query("vllm", 102, ref): {} if value is None else {"{}": value}
        for ref, value in (("A", calm), ("B", crowded))
    }
    check(tmp_path, series, answers)


@pytest.mark.parametrize("nvml", [False, True], ids=["by DCGM alone", "by NVML, too"])
def test_a_card_that_only_dcgm_reads_has_room_heat_and_faults(nvml: bool, tmp_path: Path) -> None:
    server = 'job="kvscope",instance="a",namespace="n",pod="p"'
    card = f'{server},gpu="0",uuid="GPU-0"'
    series = {
        f'kvscope_source_up{{{server},model_name="m",engine="0"}}': f"1x{SCRAPES}",
        f"gpu:dcgm_memory_free_mebibytes:max{{{card}}}": f"3x{SCRAPES}",
        f"gpu:dcgm_temperature_celsius:max{{{card}}}": f"71x{SCRAPES}",
        f"gpu:dcgm_xid:last{{{card}}}": f"79x{SCRAPES}",
    }
    if nvml:
        series[f"kvscope_gpu_up{{{card}}}"] = f"1x{SCRAPES}"
    answers: dict[str, dict[str, float]] = {
        query("memory", 101, "D"): {"{}": 3.0 * 2**20},
        query("memory", 103, "B"): {"{}": 0.0 if nvml else 1.0},
        query("memory", 605, "D"): {'{namespace="n",pod="p",gpu="0"}': 71.0},
    }
    check(tmp_path, series, answers)
