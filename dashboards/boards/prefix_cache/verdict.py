"""Prefix cache, first row: does the cache pay?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.links import KV_POOL, to_dashboard
from dashboards.kit.panels import BLOCKS, RATIO, SECONDS, TOKENS, Q, numbers
from dashboards.kit.queries import (
    ENGINE,
    WHOLE_RANGE,
    over_range,
    rate,
    recent,
    series,
    total,
    worst,
)
from kvscope_monitoring import formulas

_HIT = "kvscope_prefix_cache_hit_tokens_total"


def _shortfall() -> str:
    """In whole blocks. Absence has two opposite reasons: without regret this is 0; with regret that
    even the largest known size would not have avoided, -1."""
    regret = recent(total(rate("kvscope_prefix_cache_regret_tokens_total")))
    known = worst(series("kvscope_kv_pool_shortfall_blocks"))
    return f"ceil({known}) or 0 * ({regret} == 0) or -1 * ({regret} > bool 0)"


def row() -> Row:
    return Row(
        100,
        "Does the cache pay?  (time range on screen)",
        [
            numbers(
                101,
                "Hit ratio, of tokens",
                "Share of prompt tokens found in the cache, first admissions only. Good depends on "
                "the workload: chats and agents reach 50 to 90 %, unrelated prompts 0. Compare it "
                "with its own past below.",
                RATIO,
                Q(formulas.hit_ratio(WHOLE_RANGE, selector=ENGINE), ""),
                when_absent="idle",
            ),
            numbers(
                102,
                "Tokens saved",
                "Tokens that were not computed because the cache had them: what its memory buys. "
                "At 0, prefix caching buys nothing here.",
                TOKENS,
                Q(total(over_range(_HIT, phase="first")), ""),
                decimals=0,
                when_absent="no engine",
            ),
            numbers(
                103,
                "Regret",
                "Share of the prompt tokens that were computed again because their blocks had "
                "been evicted: what a larger pool could have found. Above a tenth: more KV "
                "memory, or route equal prefixes to the same engine. Some of the forgotten "
                "misses below may belong here, too.",
                RATIO,
                Q(formulas.regretted_share(WHOLE_RANGE, selector=ENGINE), ""),
                steps=limits.REGRETTED_SHARE,
                when_absent="idle",
            ),
            numbers(
                104,
                "Blocks too few",
                "How many more blocks would have kept nine tenths of what was evicted and asked "
                "for again in the last five minutes, in the engine where it is highest. 'over "
                "4x': four times the pool would not be enough; see the curve.",
                BLOCKS,
                Q(_shortfall(), ""),
                words={0: ("no shortfall", "text"), -1: ("over 4x", "orange")},
                decimals=0,
                when_absent="not known",
            ),
            numbers(
                105,
                "Remembers the last",
                "How long the next block to be evicted has been idle, in the engine where it is "
                "shortest. Shorter than the pauses of your users' conversations: the cache is too "
                "small for them.",
                SECONDS,
                Q(f"min({series('kvscope_kv_retention_seconds')})", ""),
                when_absent="not known",
            ),
            numbers(
                106,
                "After a preemption",
                "Hit ratio of requests that resume: what the cache kept of their own tokens. Low: "
                "preemptions cost their full price; see the KV pool.",
                RATIO,
                Q(formulas.hit_ratio(WHOLE_RANGE, selector=ENGINE, phase="resumed"), ""),
                when_absent="no resumption",
                link=to_dashboard("KV pool", KV_POOL),
            ),
        ],
    )
