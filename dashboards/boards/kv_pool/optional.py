"""KV pool: features of some engines: blocks on the host, tiers below the pool, samples, drafts."""

from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import (
    COUNT,
    RATIO,
    Q,
    graph,
)
from dashboards.kit.queries import rate, series, total, worst
from kvscope_monitoring.formulas import share

_NO_TIER = "No engine here has a tier below its pool."
_BY = "instance, model_name, tier"
_LEGEND = "{{tier}} of {{instance}}"


def row() -> Row:
    hits = total(rate("kvscope_kv_tier_hit_tokens_total"), _BY)
    queried = total(rate("kvscope_kv_tier_queried_tokens_total"), _BY)
    return Row(
        1000,
        "Layers of several kinds, and tiers below the pool",
        [
            graph(
                1001,
                "Blocks by kind of layers",
                "All kinds share one pool. active: referenced by requests. cached: kept for later "
                "prompts.",
                COUNT,
                Q(total(series("kvscope_kv_group_blocks"), "kind, state"), "{{kind}}, {{state}}"),
                stacked=True,
                axis="blocks",
                span=8,
                when_absent="All layers of this model are of one kind.",
                height=8,
            ),
            graph(
                1004,
                "Tiers: found",
                "Hit ratio of a tier below the pool, in tokens. Low although it is full: it is "
                "too small, or prompts do not come back.",
                RATIO,
                *outstanding(share(hits, queried), _LEGEND, by=_BY, lowest=True, rank="avg"),
                high=1,
                span=8,
                height=8,
                when_absent=_NO_TIER,
            ),
            graph(
                1005,
                "Tiers: in use",
                "How full each tier is, and what it holds. Full with few hits: it thrashes; give "
                "it more memory, or switch it off.",
                RATIO,
                *outstanding(
                    worst(series("kvscope_kv_tier_used_ratio"), _BY), _LEGEND, by=_BY, rank="avg"
                ),
                high=1,
                span=8,
                height=8,
                when_absent=_NO_TIER,
            ),
        ],
    )
