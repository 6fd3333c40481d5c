"""KV pool: what holds the blocks?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.links import PREFIX_CACHE, to_dashboard
from dashboards.kit.panels import A_SECOND, BLOCKS, BLOCKS_PER_SECOND, RATIO, Q, graph
from dashboards.kit.queries import BY_ENGINE, ENGINE_LEGEND, rate, series, total, worst

_ACTIVE = series("kvscope_kv_active_ratio")


def row() -> Row:
    fullest = f"(avg_over_time(({worst(_ACTIVE, BY_ENGINE)})[$__range:$__interval] @ end()))"
    alone = f"and on ({BY_ENGINE}) topk(1, {fullest})"
    return Row(
        200,
        "What holds the blocks?",
        [
            graph(
                201,
                "Every block of the fullest pool",
                "The engine whose pool was fullest on average: a sum over all would hide it. "
                "active: referenced by sequences. cached: unreferenced but findable, and taken "
                "when needed. free: empty. reserved: never handed out. They add up to the "
                "capacity. Active up to the top is pressure; cached up to the top is a cache that "
                "uses idle memory well.",
                BLOCKS,
                Q(total(f"{series('kvscope_kv_blocks')} {alone}", "state"), "{{state}}"),
                Q(
                    f"{worst(series('kvscope_kv_capacity_blocks'), BY_ENGINE)} {alone}",
                    f"capacity of {ENGINE_LEGEND}",
                ),
                stacked=True,
                lines=("capacity",),
                colours=limits.BLOCK_COLOURS,
                axis="blocks",
                height=8,
                span=10,
                right=True,
                calcs=("lastNotNull",),
            ),
            graph(
                202,
                "Active and resident share",
                "Shares of the usable blocks. active: referenced by sequences. resident: "
                "referenced, or findable in the cache, in the engine where it is lowest; near 100 "
                "% once a cache has warmed up. Active near 100 %: preemptions follow.",
                RATIO,
                *outstanding(
                    worst(series("kvscope_kv_active_ratio"), BY_ENGINE),
                    f"active, {ENGINE_LEGEND}",
                    rank="avg",
                ),
                Q(f"min({series('kvscope_kv_resident_ratio')})", "resident, least"),
                high=1,
                steps=limits.POOL_USAGE,
                height=8,
                span=8,
            ),
            graph(
                203,
                "Evicted from the cache",
                "Cached blocks that lost their content. capacity: others needed the room; the "
                "prefix cache dashboard says whether that cost hits. reset: it was cleared by "
                "hand.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_block_evictions_total"), "cause"), "{{cause}}"),
                stacked=True,
                colours={"capacity": "orange", "reset": "purple"},
                axis=A_SECOND,
                span=6,
                height=8,
                link=to_dashboard("Prefix cache", PREFIX_CACHE),
            ),
        ],
    )
