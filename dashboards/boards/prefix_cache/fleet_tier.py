"""Prefix cache: what a tier behind all pools would bring, by its size."""

from dashboards.boards.prefix_cache.fleet_figures import (
    EVERY_ROW,
    NO_FLEET,
    SPACE,
    at_every_size,
    enough,
    reached,
    shown,
    tier_bytes,
    tier_share,
    tier_sizes,
)
from dashboards.kit.curves import Curve, curve
from dashboards.kit.panels import BLOCKS, BYTES, RATIO, TOKENS_PER_SECOND, Panel, Q
from dashboards.kit.queries import WHOLE_RANGE, series, total
from dashboards.kit.tables import Column, rows
from kvscope_monitoring import fleet
from kvscope_monitoring.selectors import rate

_POOLS = total(series("kvscope_fleet_pool_blocks", SPACE))
_MARKS = {0: ("", "transparent"), 1: ("as the pools", "transparent"), 2: ("enough", "blue")}
_TIERS = "kvscope_fleet_tier_hit_tokens_total"


def _mark() -> str:
    """2 for the smallest tier that is enough, 1 for the largest that does not exceed all pools
    together, 0 for the others: codes of _MARKS."""
    sizes = tier_sizes()
    smaller = f"({sizes} <= {EVERY_ROW} {_POOLS})"
    return shown(
        f"2 * group by (tier_blocks) ({sizes} == {EVERY_ROW} {enough(sizes)})"
        f"\nor group by (tier_blocks) ({sizes} == {EVERY_ROW} max({smaller}))"
        f"\nor 0 * {sizes}"
    )


def _saved() -> str:
    """Prompt tokens a second beyond what the pools find by themselves."""
    with_tier = total(rate(_TIERS, WHOLE_RANGE, SPACE), "tier_blocks")
    return f"{with_tier} - {EVERY_ROW} {fleet.tokens('own', WHOLE_RANGE, selector=SPACE)}"


def picture() -> Panel:
    sizes = tier_sizes()
    return curve(
        903,
        "Hit ratio with a shared tier behind all pools",
        "Share of the tokens asked for that the pools find together with a tier of that "
        "many blocks, which all replicas share and which holds copies (host memory or a "
        "store behind a connector). Steep: a tier of that size pays. Flat from the left: "
        "the router or the workload is the limit. you are here: the blocks of all pools, "
        "and what they find without a tier. Several models: each has a tier of that size.",
        Q(shown(sizes), "blocks"),
        Q(shown(tier_share()), "with a tier"),
        Q(at_every_size(reached("seen")), "asked for before"),
        Q(at_every_size(_POOLS), "blocks of the pools"),
        Q(at_every_size(reached("own")), "found today"),
        drawn=(
            Curve("with a tier of this size", "blocks", "with a tier", "green"),
            Curve("no limit", "blocks", "asked for before", "text", "lines"),
            Curve("you are here", "blocks of the pools", "found today", "orange", "points"),
        ),
        x_axis="blocks of the tier",
        x_unit=BLOCKS,
        y_unit=RATIO,
        logarithmic=True,
        span=10,
        when_absent=NO_FLEET,
    )


def table() -> Panel:
    sizes, memory = tier_sizes(), tier_bytes()
    return rows(
        904,
        "What a tier would cost, and save",
        "By size: its blocks, its bytes of K and V, the hit ratio with it, and the prompt "
        "tokens a second that it would spare beyond what the pools find. enough: the "
        "smallest simulated one with 95 % of all possible hits. as the pools: the largest "
        "that does not exceed all pools together. Bytes are absent where the server does "
        "not say how many a block has.",
        Q(shown(sizes), "blocks"),
        Q(shown(memory), "memory"),
        Q(shown(tier_share()), "ratio"),
        Q(shown(_saved()), "saved"),
        Q(_mark(), "mark"),
        columns={
            "blocks": Column("Blocks", BLOCKS, width=90, decimals=0),
            "memory": Column("K and V", BYTES, width=90),
            "ratio": Column("Hit ratio", RATIO, width=85),
            "saved": Column("Saves", TOKENS_PER_SECOND, least=90, decimals=1),
            "mark": Column("Verdict", meanings=_MARKS, width=105),
        },
        span=14,
        height=10,
        when_absent=NO_FLEET,
        least_first=("Blocks",),
    )
