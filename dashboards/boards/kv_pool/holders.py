"""KV pool: what holds the blocks?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.links import PREFIX_CACHE, to_dashboard
from dashboards.kit.panels import BLOCKS, RATIO, Q, graph
from dashboards.kit.queries import BY_ENGINE, ENGINE_LEGEND, series, total, worst
from kvscope_monitoring.formulas import share

_ACTIVE = series("kvscope_kv_blocks", state="active")


def row() -> Row:
    tokens = f"{_ACTIVE} * ignoring (state) {series('kvscope_kv_block_size_tokens')}"
    return Row(
        200,
        "What holds the blocks?",
        [
            graph(
                201,
                "Every block of the pool",
                "active: referenced by sequences. cached: unreferenced but findable, and taken "
                "when needed. free: empty. reserved: never handed out. They add up to the "
                "capacity. Active up to the top is pressure; cached up to the top is a cache that "
                "uses idle memory well.",
                BLOCKS,
                Q(total(series("kvscope_kv_blocks"), "state"), "{{state}}"),
                Q(total(series("kvscope_kv_capacity_blocks")), "capacity"),
                stacked=True,
                lines=("capacity",),
                colours=limits.BLOCK_COLOURS,
                axis="blocks",
                height=9,
                span=14,
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
                height=9,
                span=10,
            ),
            graph(
                203,
                "Saved by sharing",
                "shared: blocks that more than one sequence references, found in the cache or "
                "forked (samples of one prompt, n). saved: blocks that would be needed without "
                "sharing. 0 although prompts are similar: prefix caching is off, or they differ "
                "early.",
                BLOCKS,
                Q(total(series("kvscope_kv_shared_blocks")), "shared"),
                Q(total(series("kvscope_kv_deduplicated_blocks")), "saved"),
                axis="blocks",
                height=6,
                span=12,
                link=to_dashboard("Prefix cache", PREFIX_CACHE),
            ),
            graph(
                204,
                "Unfilled slots",
                "Share of the token slots of active blocks that hold no token: the price of "
                "blocks. Half a block a sequence is normal; more than a fifth of the pool: "
                "smaller --block-size (SGLang: --page-size).",
                RATIO,
                *outstanding(
                    share(
                        total(series("kvscope_kv_unfilled_slots"), BY_ENGINE),
                        total(tokens, BY_ENGINE),
                    ),
                    rank="avg",
                ),
                height=6,
                span=12,
                when_absent="Not known for layers of several kinds, nor reported by an SGLang.",
            ),
        ],
    )
