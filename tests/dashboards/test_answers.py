"""The panels of the answers: the what-if curve, regret and the bill, through promtool."""

import json
from pathlib import Path
from typing import Any

import pytest

from dashboards.boards.prefix_cache import whatif
from dashboards.generate import FOLDER
from kvscope_exporter.catalogue import metric
from tests.dashboards.evaluate import Series, check, query

pytestmark = pytest.mark.promtool

SCRAPES = 120
"""Scrapes in ten minutes of history."""
SMALL, LARGE = (
    f'job="kvscope",instance="{name}",model_name="m",engine="0"' for name in ("small", "large")
)
HITS = {"0.25": 1, "0.5": 2, "0.75": 3, "1": 4, "1.5": 5, "2": 6, "4": 7, "inf": 8}
"""Blocks in the time between two scrapes, of ten asked for."""
NAME = "kvscope_prefix_cache_whatif"


def engine(who: str, usable: int, hits: dict[str, int]) -> Series:
    return {
        f"{NAME}_queried_blocks_total{{{who}}}": f"0+10x{SCRAPES}",
        f"{NAME}_error_blocks_total{{{who}}}": f"0+1x{SCRAPES}",
        f"kvscope_kv_usable_blocks{{{who}}}": f"{usable}x{SCRAPES}",
        f"kvscope_kv_block_size_bytes{{{who}}}": f"1000x{SCRAPES}",
        f"kvscope_kv_block_size_tokens{{{who}}}": f"16x{SCRAPES}",
        **{
            f'{NAME}_hit_blocks_total{{scale="{scale}",{who}}}': f"0+{blocks}x{SCRAPES}"
            for scale, blocks in hits.items()
        },
    }


def by_scale(values: dict[str, float]) -> dict[str, float]:
    return {f'{{scale="{scale}"}}': value for scale, value in values.items()}


FINITE = [scale for scale in HITS if scale != "inf"]
CURVE = {
    name: query("prefix-cache", 601, letter) for name, letter in zip("xyl", "ABC", strict=True)
}
HERE_X, HERE_Y = query("prefix-cache", 601, "D"), query("prefix-cache", 601, "E")


def test_the_curve_has_hits_over_blocks(tmp_path: Path) -> None:
    answers = {
        CURVE["x"]: by_scale({scale: 1000 * float(scale) for scale in FINITE}),
        CURVE["y"]: by_scale({scale: HITS[scale] / 10 for scale in FINITE}),
        CURVE["l"]: by_scale(dict.fromkeys(FINITE, 0.8)),
        HERE_X: by_scale(dict.fromkeys(FINITE, 1000)),
        HERE_Y: by_scale(dict.fromkeys(FINITE, 0.4)),
    }
    check(tmp_path, engine(SMALL, 1000, HITS), answers)


def test_engines_are_one_pool_of_their_sum(tmp_path: Path) -> None:
    series = engine(SMALL, 1000, HITS) | engine(LARGE, 3000, dict.fromkeys(HITS, 8))
    answers = {
        CURVE["x"]: by_scale({scale: 4000 * float(scale) for scale in FINITE}),
        CURVE["y"]: by_scale({scale: (HITS[scale] + 8) / 20 for scale in FINITE}),
        HERE_X: by_scale(dict.fromkeys(FINITE, 4000)),
        HERE_Y: by_scale(dict.fromkeys(FINITE, 0.6)),
    }
    check(tmp_path, series, answers)


def test_of_several_models_the_busiest_has_a_curve(tmp_path: Path) -> None:
    quiet = {
        name.replace('"m"', '"n"'): values.replace("0+10x", "0+9x")
        for name, values in engine(LARGE, 3000, HITS).items()
    }
    answers = {
        CURVE["x"]: by_scale({scale: 1000 * float(scale) for scale in FINITE}),
        CURVE["y"]: by_scale({scale: HITS[scale] / 10 for scale in FINITE}),
        query("prefix-cache", 603): {'{model_name="m"}': 0.1},
    }
    check(tmp_path, engine(SMALL, 1000, HITS) | quiet, answers)


def test_a_size_that_is_not_known_is_left_out(tmp_path: Path) -> None:
    known = {scale: blocks for scale, blocks in HITS.items() if scale not in ("4", "inf")}
    sizes = [scale for scale in FINITE if scale != "4"]
    answers = {
        CURVE["y"]: by_scale({scale: HITS[scale] / 10 for scale in sizes}),
        CURVE["l"]: {},
        HERE_X: by_scale(dict.fromkeys(sizes, 1000)),
    }
    check(tmp_path, engine(SMALL, 1000, known), answers)


def test_a_size_costs_bytes_and_saves_tokens(tmp_path: Path) -> None:
    memory, saved = query("prefix-cache", 602, "B"), query("prefix-cache", 602, "C")
    per_second = {scale: (blocks - HITS["1"]) * 16 / 5 for scale, blocks in HITS.items()}
    answers = {
        memory: by_scale({scale: 1e6 * float(scale) for scale in FINITE}),
        saved: by_scale(per_second),
    }
    check(tmp_path, engine(SMALL, 1000, HITS), answers)


def test_the_curve_says_by_how_much_it_is_wrong(tmp_path: Path) -> None:
    check(
        tmp_path, engine(SMALL, 1000, HITS), {query("prefix-cache", 603): {'{model_name="m"}': 0.1}}
    )


def test_every_size_of_the_catalogue_is_drawn() -> None:
    scales = metric(f"{NAME}_hit_blocks_total").closed_labels["scale"]
    assert set(FINITE) == {*whatif.SIZES} == {*scales} - {"inf"}


def test_series_of_the_picture_are_columns_of_its_rows() -> None:
    panels: list[dict[str, Any]] = json.loads((FOLDER / "kvscope-prefix-cache.json").read_text())[
        "panels"
    ]
    (picture,) = (panel for panel in panels if panel["type"] == "xychart")
    columns = {target["legendFormat"] for target in picture["targets"]}
    assert picture["options"]["mapping"] == "manual"
    for series in picture["options"]["series"]:
        assert {series[axis]["matcher"]["options"] for axis in ("x", "y")} <= columns


def test_regret_is_a_share_of_the_prompt_tokens(tmp_path: Path) -> None:
    name = "kvscope_prefix_cache"
    series = {
        f'{name}_queried_tokens_total{{phase="first",{SMALL}}}': f"0+100x{SCRAPES}",
        f'{name}_queried_tokens_total{{phase="resumed",{SMALL}}}': f"0+100x{SCRAPES}",
        f"{name}_regret_tokens_total{{{SMALL}}}": f"0+23x{SCRAPES}",
    }
    check(tmp_path, series, {query("prefix-cache", 103): {"{}": 0.23}})


KINDS = {"out_of_blocks": 2, "out_of_memory": 1, "reset": 0}
"""Preemptions in the time between two scrapes."""


def test_the_bill_is_of_one_preemption(tmp_path: Path) -> None:
    series = {}
    for cause, count in KINDS.items():
        labels = f'mode="recompute",cause="{cause}",{SMALL}'
        figures = {
            "preemptions": count,
            "preemption_discarded_tokens": 100 * count,
            "preemption_found_tokens": 75 * count,
            "preemption_recomputed_tokens": 25 * count,
            "preemption_stalled_seconds": 3 * count,
        }
        for name, value in figures.items():
            series[f"kvscope_{name}_total{{{labels}}}"] = f"0+{value}x{SCRAPES}"
    happened = [f'{{mode="recompute",cause="{cause}"}}' for cause, count in KINDS.items() if count]
    answers = {
        query("kv-pool", 305, letter): dict.fromkeys(happened, value)
        for letter, value in {"B": 100.0, "C": 0.75, "D": 25.0, "E": 3.0}.items()
    }
    check(tmp_path, series, answers)
