"""Prefix cache, first row: does the cache pay?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.links import KV_POOL, to_dashboard
from dashboards.kit.panels import RATIO, TOKENS, Q, numbers
from dashboards.kit.queries import ENGINE, WHOLE_RANGE, or_zero, over_range, total
from monitoring import formulas
from monitoring.formulas import share

_HIT, _ASKED = "kvscope_prefix_cache_hit_tokens_total", "kvscope_prefix_cache_queried_tokens_total"
_ASKED_BLOCKS = "kvscope_prefix_cache_queried_blocks_total"
_MISSED = "kvscope_prefix_cache_missed_blocks_total"


def _of_asked(*causes: str) -> str:
    missed = total(over_range("kvscope_prefix_cache_missed_blocks_total", cause=causes))
    return share(missed, total(over_range("kvscope_prefix_cache_queried_blocks_total")))


def row() -> Row:
    return Row(
        100,
        "Does the cache pay?  (time range on screen)",
        [
            numbers(
                101,
                "Hit ratio",
                "Share of prompt tokens found in the cache, first admissions only. Good depends on "
                "the workload: chats and agents reach 50 to 90 %, unrelated prompts 0. Compare it "
                "with its own past below.",
                RATIO,
                Q(formulas.hit_ratio(WHOLE_RANGE, selector=ENGINE), ""),
                when_absent="idle",
            ),
            numbers(
                102,
                "Prompt tokens saved",
                "Tokens that were not computed because the cache had them: what its memory buys. "
                "At 0, prefix caching buys nothing here.",
                TOKENS,
                Q(or_zero(total(over_range(_HIT, phase="first"))), ""),
            ),
            numbers(
                103,
                "Missed: evicted",
                "Share of the asked blocks that were missed because they, or an ancestor, had "
                "been evicted: what a larger pool could have found. Above some percent: more KV "
                "memory, or route equal prefixes to the same engine. Some of the forgotten misses "
                "below may belong here, too.",
                RATIO,
                Q(_of_asked("evicted", "unreachable"), ""),
                steps=limits.EVICTED_SHARE,
                when_absent="idle",
            ),
            numbers(
                104,
                "Never seen before",
                "Share of the asked blocks that no earlier request had: no cache of any size finds "
                "them. High where you expect repeats: prompts differ early, for instance by a date "
                "in the system prompt.",
                RATIO,
                Q(_of_asked("cold"), ""),
                when_absent="idle",
            ),
            numbers(
                105,
                "Too short for a block",
                "Share of the asked blocks at the ends of prompts, which are not full and so "
                "cannot hit. High: prompts are short against --block-size.",
                RATIO,
                Q(_of_asked("partial"), ""),
                when_absent="idle",
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
