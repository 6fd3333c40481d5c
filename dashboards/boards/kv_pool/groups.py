"""KV pool: how kinds of layers share it. For models with sliding windows or states."""

from dashboards.kit.frame import Row
from dashboards.kit.panels import A_SECOND, BLOCKS_PER_SECOND, COUNT, SECONDS, Q, graph
from dashboards.kit.queries import rate, series, total
from kvscope_monitoring.formulas import share

_IDLE = "kvscope_kv_group_idle"
_PLAIN = "All layers of this model are of one kind."


def row() -> Row:
    return Row(
        1100,
        "Layers of several kinds: who has the blocks?",
        [
            graph(
                1101,
                "Blocks by kind of layers",
                "All kinds share one pool. active: referenced by requests. cached: kept for later "
                "prompts.",
                COUNT,
                Q(total(series("kvscope_kv_group_blocks"), "kind, state"), "{{kind}}, {{state}}"),
                stacked=True,
                axis="blocks",
                span=8,
                when_absent=_PLAIN,
            ),
            graph(
                1102,
                "Evicted, by kind of layers",
                "Cached blocks that lost their content. Windows or states among them: prompts that "
                "come back cannot hit there, even if full attention still has its blocks.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_group_evictions_total"), "kind"), "{{kind}}"),
                axis=A_SECOND,
                span=8,
                when_absent=_PLAIN,
            ),
            graph(
                1103,
                "Kept unused, by kind of layers",
                "Mean time from the last reference of a block to its eviction. A kind that is kept "
                "for less than the pause between two prompts of a user cannot hit.",
                SECONDS,
                Q(share(_sum("seconds"), _sum("evictions")), "{{kind}}"),
                span=8,
                when_absent=_PLAIN,
            ),
        ],
    )


def _sum(what: str) -> str:
    return total(rate(f"{_IDLE}_{what}_total"), "kind")
