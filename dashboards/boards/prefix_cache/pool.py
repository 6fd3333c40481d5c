"""Prefix cache: is there room for it?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import BLOCKS, BLOCKS_PER_SECOND, Q, graph
from dashboards.kit.queries import rate, series, total

_HIT_BLOCKS = "kvscope_prefix_cache_hit_blocks_total"
_ASKED_BLOCKS = "kvscope_prefix_cache_queried_blocks_total"
_MISSED = "kvscope_prefix_cache_missed_blocks_total"
_UNKNOWN = (
    f"clamp_min(round({total(rate(_ASKED_BLOCKS))} - {total(rate(_HIT_BLOCKS))}"
    f" - {total(rate(_MISSED))}, 1e-6), 0)"
)
"""Missed blocks per second without a cause; rounded, because differences leave a rest of 1e-15."""


def row() -> Row:
    return Row(
        400,
        "Is there room for it?",
        [
            graph(
                401,
                "What the cache lives in",
                "The cache has the room that active requests leave. cached squeezed by active: "
                "hits go when load comes. free left over: the cache is not limited by memory.",
                BLOCKS,
                Q(total(series("kvscope_kv_blocks"), "state"), "{{state}}"),
                stacked=True,
                colours=limits.BLOCK_COLOURS,
                axis="blocks",
                span=8,
                height=10,
            ),
            graph(
                402,
                "Evicted, and missed because of it",
                "Evictions alone are harmless. Where misses follow them, blocks are needed again "
                "after they are gone: that traffic is what more memory would serve. forgotten: "
                "some of these misses may be evicted ones that the exporter no longer remembers.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_block_evictions_total")), "evicted"),
                Q(total(rate(_MISSED, cause="evicted")), "missed: evicted"),
                Q(total(rate(_MISSED, cause="unreachable")), "missed: unreachable"),
                Q(total(rate(_MISSED, cause="forgotten")), "missed: forgotten"),
                colours={
                    "evicted": "#55606e",
                    "missed: evicted": "orange",
                    "missed: unreachable": "purple",
                    "missed: forgotten": "super-light-yellow",
                },
                span=8,
                height=10,
            ),
            graph(
                403,
                "Shared at this moment",
                "shared: blocks that more than one sequence references. saved: blocks that would "
                "be needed without sharing. Sharing needs no extra memory: high values are pure "
                "profit.",
                BLOCKS,
                Q(total(series("kvscope_kv_shared_blocks")), "shared"),
                Q(total(series("kvscope_kv_deduplicated_blocks")), "saved"),
                axis="blocks",
                span=8,
                height=10,
            ),
        ],
    )
