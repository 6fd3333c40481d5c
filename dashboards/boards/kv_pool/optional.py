"""KV pool: features of some engines: blocks on the host, tiers below the pool, samples, drafts."""

from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import (
    A_SECOND,
    BLOCKS_PER_SECOND,
    BYTES,
    COUNT,
    RATIO,
    TOKENS_PER_SECOND,
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
        "Beside the pool: host memory, tiers, copies",
        [
            graph(
                1001,
                "Swap pool",
                "Blocks on the host, of an engine that swaps. used: held by preempted requests "
                "that wait. When no host block is free, further ones are recomputed: raise "
                "--swap-space.",
                COUNT,
                Q(total(series("kvscope_kv_swap_blocks"), "state"), "{{state}}"),
                stacked=True,
                colours={"used": "purple", "free": "green"},
                axis="blocks",
                span=8,
                height=6,
                when_absent="No engine here swaps.",
            ),
            graph(
                1002,
                "Copied to the host and back",
                "Blocks copied out when requests are preempted, and in when they resume. Less "
                "comes in than goes out where the cache still has a part. Steps wait for it.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_swapped_blocks_total"), "direction"), "{{direction}}"),
                colours={"out": "orange", "in": "light-blue"},
                axis=A_SECOND,
                span=8,
                height=6,
                when_absent="No engine here swaps.",
            ),
            graph(
                1003,
                "Copied before a write",
                "Shared blocks that were copied because one of their sequences had to append: the "
                "price of sharing a block that is not full. At most n - 1 for each prompt with n "
                "samples; 0 without samples.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_block_copies_total")), "copies"),
                axis=A_SECOND,
                when_absent="Not reported by these servers.",
                height=6,
                span=8,
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
                height=6,
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
                height=6,
                when_absent=_NO_TIER,
            ),
            graph(
                1006,
                "Tiers: blocks that come and go",
                "Blocks stored in a tier and removed from it. stored again: their content had "
                "been removed before. If there is much of it, the tier thrashes: blocks are gone "
                "before they are requested again. for nothing: removed before a lookup found them.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_tier_stored_blocks_total"), "tier"), "stored, {{tier}}"),
                Q(total(rate("kvscope_kv_tier_removed_blocks_total"), "tier"), "removed, {{tier}}"),
                Q(
                    total(rate("kvscope_kv_tier_returned_blocks_total"), "tier"),
                    "stored again, {{tier}}",
                ),
                Q(
                    total(rate("kvscope_kv_tier_unused_removed_blocks_total"), "tier"),
                    "for nothing, {{tier}}",
                ),
                axis=A_SECOND,
                span=8,
                height=6,
                when_absent=_NO_TIER,
            ),
            graph(
                1008,
                "Tiers: copied",
                "KV copied into the pool from a tier (load) and out of it (store). What a store "
                "costs is bandwidth; what a load saves is computing: `/api/whatif` compares them.",
                BYTES,
                Q(
                    total(rate("kvscope_kv_tier_transferred_bytes_total"), "direction"),
                    "{{direction}}",
                ),
                axis=A_SECOND,
                span=8,
                height=6,
                when_absent=_NO_TIER,
            ),
            graph(
                1009,
                "Slots of drafts",
                "Tokens that a drafter proposed and a step verified, each in a slot of the pool. "
                "rejected: computed and written for nothing. Most of them: draft fewer tokens at "
                "a time, or none under load.",
                TOKENS_PER_SECOND,
                Q(total(rate("kvscope_speculative_tokens_total"), "outcome"), "{{outcome}}"),
                stacked=True,
                colours={"accepted": "green", "rejected": "orange"},
                axis="tokens a second",
                span=8,
                height=6,
                when_absent="No speculative decoding.",
            ),
            graph(
                1010,
                "Blocks of drafters",
                "Blocks of the layers of a draft model: the part of the pool that speculation "
                "takes from the model's own sequences and prefixes.",
                COUNT,
                Q(total(series("kvscope_kv_drafter_blocks"), "state"), "{{state}}"),
                stacked=True,
                axis="blocks",
                span=8,
                height=6,
                when_absent="No draft model with layers of its own.",
            ),
            graph(
                1007,
                "Held after the end",
                "Active blocks that only requests reference that have ended. transfer: a connector "
                "sends them to another server, or stores them in another tier. load: the request "
                "ended before a load into them did. A level that does not fall while no requests "
                "run: a transfer never ends.",
                COUNT,
                Q(total(series("kvscope_kv_held_blocks"), "reason"), "{{reason}}"),
                stacked=True,
                colours={"transfer": "purple", "load": "orange"},
                axis="blocks",
                height=6,
                span=8,
                when_absent="No server here has a connector that keeps blocks.",
            ),
        ],
    )
