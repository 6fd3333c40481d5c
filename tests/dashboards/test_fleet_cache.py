"""The row of a fleet's cache: its figures from made-up sums, through promtool."""

from pathlib import Path

import pytest

from tests.dashboards.evaluate import Series, check, query

pytestmark = pytest.mark.promtool

SCRAPES = 120
PROCESS = 'job="kvscope-fleet",instance="fleet:8011"'
ROUTER = {"own": 8, "best": 25, "anywhere": 25, "seen": 37, "asked": 100}
"""Tokens in the time between two scrapes: most of what could be found is lost by routing."""
CAPACITY = {"own": 20, "best": 24, "anywhere": 25, "seen": 70, "asked": 100}
TIERS = {"256": 10, "512": 20, "1024": 36, "2048": 37, "4096": 37, "8192": 37}


def space(steps: dict[str, int], model: str = "m", size: int = 1000) -> Series:
    labels = f'{PROCESS},model_name="{model}",name_space="{model}-1"'
    return {
        **{
            f'kvscope_fleet_prefix_tokens_total{{step="{step}",{labels}}}': f"0+{n}x{SCRAPES}"
            for step, n in steps.items()
        },
        **{
            f'kvscope_fleet_tier_hit_tokens_total{{tier_blocks="{tier}",{labels}}}': (
                f"0+{n}x{SCRAPES}"
            )
            for tier, n in TIERS.items()
        },
        **{
            f'kvscope_fleet_tier_size_blocks{{tier_blocks="{tier}",{PROCESS}}}': f"{tier}x{SCRAPES}"
            for tier in TIERS
        },
        f"kvscope_fleet_pool_blocks{{{labels}}}": f"600x{SCRAPES}",
        f"kvscope_fleet_block_tokens{{{labels}}}": f"16x{SCRAPES}",
        f"kvscope_fleet_block_bytes{{{labels}}}": f"{size}x{SCRAPES}",
    }


def by_tier(values: dict[str, float]) -> dict[str, float]:
    return {f'{{tier_blocks="{tier}"}}': value for tier, value in values.items()}


def test_the_waterfall_has_shares_of_what_was_asked_for(tmp_path: Path) -> None:
    steps = {query("prefix-cache", 901, ref): {"{}": value} for ref, value in _by_ref(ROUTER)}
    losses = dict(zip("BCDE", (0.17, 0.0, 0.12, 0.63), strict=True))
    model = '{model_name="m",name_space="m-1"}'
    lost = {query("prefix-cache", 902, ref): {model: value} for ref, value in losses.items()}
    check(tmp_path, space(ROUTER), steps | lost)


def _by_ref(steps: dict[str, int]) -> list[tuple[str, float]]:
    return [(ref, n / 100) for ref, n in zip("ABCDE", steps.values(), strict=True)]


def test_the_tiers_are_drawn_up_to_four_times_the_one_that_is_enough(tmp_path: Path) -> None:
    near = [tier for tier in TIERS if int(tier) <= 4 * 1024]
    answers = {
        query("prefix-cache", 903, "A"): by_tier({tier: float(tier) for tier in near}),
        query("prefix-cache", 903, "B"): by_tier({tier: TIERS[tier] / 100 for tier in near}),
        query("prefix-cache", 903, "C"): by_tier(dict.fromkeys(near, 0.37)),
        query("prefix-cache", 903, "D"): by_tier(dict.fromkeys(near, 600.0)),
        query("prefix-cache", 903, "E"): by_tier(dict.fromkeys(near, 0.08)),
        query("prefix-cache", 904, "B"): by_tier({tier: 1000.0 * int(tier) for tier in near}),
        query("prefix-cache", 904, "D"): by_tier({tier: (TIERS[tier] - 8) / 5 for tier in near}),
        query("prefix-cache", 904, "E"): by_tier(
            dict.fromkeys(near, 0.0) | {"512": 1.0, "1024": 2.0}
        ),
    }
    check(tmp_path, space(ROUTER), answers)


def test_no_tier_is_enough_where_all_are_too_small(tmp_path: Path) -> None:
    answers = {
        query("prefix-cache", 903, "A"): by_tier({tier: float(tier) for tier in TIERS}),
        query("prefix-cache", 904, "E"): by_tier(dict.fromkeys(TIERS, 0.0) | {"512": 1.0}),
    }
    check(tmp_path, space(CAPACITY), answers)
