"""Prefix cache, first row: does the cache pay?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.links import KV_POOL, to_dashboard
from dashboards.kit.panels import BLOCKS, RATIO, TOKENS, Q, numbers
from dashboards.kit.queries import (
    ENGINE,
    WHOLE_RANGE,
    over_range,
    series,
    total,
    worst,
)
from kvscope_monitoring import formulas

_HIT = "kvscope_prefix_cache_hit_tokens_total"
_MISSING = worst(series("kvscope_kv_pool_shortfall_blocks"))


def row() -> Row:
    return Row(
        100,
        "Does the cache pay?  (time range on screen)",
        [
            numbers(
                101,
                "Hit ratio, of tokens",
                "Share of prompt tokens found in the cache. first: first admissions. Good depends "
                "on the workload: chats and agents reach 50 to 90 %, unrelated prompts 0. Compare "
                "it with its own past below. resumed: what the cache kept of the tokens of "
                "preempted requests. Low: preemptions cost their full price; see the KV pool.",
                RATIO,
                Q(formulas.hit_ratio(WHOLE_RANGE, selector=ENGINE), "first"),
                Q(formulas.hit_ratio(WHOLE_RANGE, selector=ENGINE, phase="resumed"), "resumed"),
                span=8,
                when_absent="idle",
                link=to_dashboard("KV pool", KV_POOL),
            ),
            numbers(
                102,
                "Tokens saved",
                "Tokens that were not computed because the cache had them: what its memory buys. "
                "At 0, prefix caching buys nothing here.",
                TOKENS,
                Q(total(over_range(_HIT, phase="first")), ""),
                decimals=0,
                span=8,
                when_absent="no engine",
            ),
            numbers(
                103,
                "Regret",
                "Share of the prompt tokens that were computed again because their blocks had "
                "been evicted: what a larger pool could have found. Above a tenth: more KV "
                "memory, or route equal prefixes to the same engine. missing blocks: how many "
                "more would have kept nine tenths of what was evicted and asked for again in the "
                "last five minutes, in the engine where it is highest.",
                RATIO,
                Q(formulas.regretted_share(WHOLE_RANGE, selector=ENGINE), "of prompt tokens"),
                Q(f"ceil({_MISSING})", "missing blocks", limits.UNJUDGED),
                units={"missing blocks": BLOCKS},
                steps=limits.REGRETTED_SHARE,
                span=8,
                when_absent="idle",
            ),
        ],
    )
