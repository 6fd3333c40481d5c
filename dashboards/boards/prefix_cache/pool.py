"""Prefix cache: is there room for it?"""

from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.links import KV_POOL, to_dashboard
from dashboards.kit.panels import BLOCKS, SECONDS, graph
from dashboards.kit.queries import BY_ENGINE, series, worst


def row() -> Row:
    return Row(
        400,
        "Is there room for it?",
        [
            graph(
                403,
                "Missing blocks",
                "How many more blocks would have kept nine tenths of what was evicted and asked "
                "for again in the last five minutes. Gaps: nothing was, or even four times the "
                "pool would not have. Steady and small against the pool: give it that much.",
                BLOCKS,
                *outstanding(worst(series("kvscope_kv_pool_shortfall_blocks"), BY_ENGINE)),
                axis="blocks",
                span=12,
                height=8,
                when_absent="No regret, or more blocks are missing than can be measured.",
            ),
            graph(
                404,
                "Cache memory span",
                "How long the next block to be evicted has been idle. A conversation "
                "that pauses longer is forgotten. It grows while there are free blocks; it falls "
                "when load comes, because active requests take the cache's room.",
                SECONDS,
                *outstanding(worst(series("kvscope_kv_retention_seconds"), BY_ENGINE), lowest=True),
                span=12,
                height=8,
                calcs=("lastNotNull", "min"),
                when_absent="Unknown: no block can be evicted, it is older than the exporter, "
                "or the server does not number its blocks (SGLang).",
                link=to_dashboard("KV pool", KV_POOL),
            ),
        ],
    )
