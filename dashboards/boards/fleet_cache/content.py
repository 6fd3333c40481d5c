"""Fleet cache: what do the pools hold, and how much of it twice?"""

from dashboards.boards.fleet_cache.figures import NO_FLEET, SPACE
from dashboards.kit.frame import Row
from dashboards.kit.panels import BLOCKS, RATIO, Q, graph
from dashboards.kit.queries import series, total
from kvscope_monitoring.formulas import share

_RESIDENT = "kvscope_fleet_resident_blocks"
_POOL = "kvscope_fleet_pool_blocks"


def row() -> Row:
    resident = total(series(_RESIDENT, SPACE))
    distinct, twice = (
        total(series(_RESIDENT, SPACE, content=content)) for content in ("distinct", "duplicate")
    )
    pool = total(series(_POOL, SPACE))
    by = "model_name, name_space"
    each = share(
        total(series(_RESIDENT, SPACE, content="duplicate"), by),
        total(series(_RESIDENT, SPACE), by),
    )
    return Row(
        400,
        "How much is held twice?",
        [
            graph(
                401,
                "What all pools hold",
                "Blocks over all pools. distinct: content that is there at least once. duplicate: "
                "another block, of any replica, has the same. other: free, or in use without a "
                "name yet. A router that knows the caches needs fewer duplicates, which is as "
                "good as larger pools.",
                BLOCKS,
                Q(distinct, "distinct"),
                Q(twice, "duplicate"),
                Q(f"{pool} - {resident}", "other"),
                Q(pool, "all pools"),
                stacked=True,
                lines=("all pools",),
                colours={
                    "distinct": "blue",
                    "duplicate": "orange",
                    "other": "#55606e",
                    "all pools": "text",
                },
                when_absent=NO_FLEET,
            ),
            graph(
                402,
                "Duplicates",
                "Share of the named blocks that hold what another block holds as well. Prefixes "
                "that all users share are on every replica, and should be. Rising together with "
                "the loss by routing: conversations move from replica to replica.",
                RATIO,
                Q(each, "{{model_name}} {{name_space}}"),
                high=1,
                calcs=("lastNotNull", "mean"),
                when_absent=NO_FLEET,
            ),
        ],
    )
