"""Prefix cache: is there room for it?"""

from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.links import KV_POOL, to_dashboard
from dashboards.kit.panels import BLOCKS, SECONDS, TOKENS_PER_SECOND, graph, heat
from dashboards.kit.queries import BY_ENGINE, buckets, rate, series, total, worst


def row() -> Row:
    return Row(
        400,
        "Is there room for it?",
        [
            graph(
                401,
                "Regretted tokens",
                "Prompt tokens a second that were computed again because their blocks had been "
                "evicted. Evictions without regret are harmless. Losses of preempted requests are "
                "not included: the KV pool dashboard has their bill.",
                TOKENS_PER_SECOND,
                *outstanding(total(rate("kvscope_prefix_cache_regret_tokens_total"), BY_ENGINE)),
                span=6,
                height=9,
                calcs=("lastNotNull", "mean"),
                link=to_dashboard("KV pool", KV_POOL),
            ),
            heat(
                402,
                "Regret age",
                "From the eviction of a block to the lookup that missed it. Seconds: the cache "
                "was only just too small, and a little more memory helps. Many minutes: it takes "
                "a much larger one, see the curve.",
                buckets("kvscope_prefix_cache_regret_age_seconds"),
                axis="after the eviction",
                span=6,
                height=9,
            ),
            graph(
                403,
                "Blocks too few",
                "How many more blocks would have kept nine tenths of what was evicted and asked "
                "for again in the last five minutes. Gaps: nothing was, or even four times the "
                "pool would not have. Steady and small against the pool: give it that much.",
                BLOCKS,
                *outstanding(worst(series("kvscope_kv_pool_shortfall_blocks"), BY_ENGINE)),
                axis="blocks",
                span=6,
                height=9,
                when_absent="No regret, or more blocks are missing than can be measured.",
            ),
            graph(
                404,
                "The cache remembers the last",
                "How long the next block to be evicted has been idle. A conversation "
                "that pauses longer is forgotten. It grows while there are free blocks; it falls "
                "when load comes, because active requests take the cache's room.",
                SECONDS,
                *outstanding(worst(series("kvscope_kv_retention_seconds"), BY_ENGINE), lowest=True),
                span=6,
                height=9,
                calcs=("lastNotNull", "min"),
                when_absent="Unknown: no block can be evicted, it is older than the exporter, "
                "or the server does not number its blocks (SGLang).",
                link=to_dashboard("KV pool", KV_POOL),
            ),
        ],
    )
