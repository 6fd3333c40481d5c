"""Prefix cache: what it found, what it missed and why, what a larger one would have found."""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards import thresholds as limits
from dashboards.frame import Row, assemble, engine_variables, gpu_variable
from dashboards.links import KV_POOL, PREFIX_CACHE, to_dashboard
from dashboards.panels import (
    BLOCKS,
    BLOCKS_PER_SECOND,
    RATIO,
    TOKENS,
    TOKENS_PER_SECOND,
    Q,
    graph,
    numbers,
    quantiles,
)
from dashboards.queries import (
    BY_ENGINE,
    ENGINE_LEGEND,
    or_zero,
    over_range,
    quantile,
    rate,
    series,
    share,
    total,
)
from dashboards.tables import note

_HIT, _ASKED = "kvscope_prefix_cache_hit_tokens_total", "kvscope_prefix_cache_queried_tokens_total"
_HIT_BLOCKS = "kvscope_prefix_cache_hit_blocks_total"
_ASKED_BLOCKS = "kvscope_prefix_cache_queried_blocks_total"
_MISSED = "kvscope_prefix_cache_missed_blocks_total"
_THAT_CAN_TELL = f"and on (job, {BY_ENGINE}) {rate(_MISSED, cause='evicted')}"
"""Engines of which cold and evicted misses are told apart now. Where more names have been seen than
are remembered, both causes end, and what they counted before is no part of the blocks asked since.
"""
_UNKNOWN = (
    f"clamp_min(round({total(rate(_ASKED_BLOCKS))} - {total(rate(_HIT_BLOCKS))}"
    f" - {total(rate(_MISSED))}, 1e-6), 0)"
)
"""Missed blocks per second without a cause; rounded, because differences leave a rest of 1e-15."""


def build() -> db.Dashboard:
    """The cache of one engine or of all."""
    return assemble(
        "Prefix cache",
        PREFIX_CACHE,
        "What the prefix cache saved, what it missed, and whether more memory would help.",
        [*engine_variables("kvscope_kv_capacity_blocks"), gpu_variable("kvscope_gpu_up")],
        [_verdict(), _misses(), _since_when(), _pool(), _advice()],
    )


def _of_asked(cause: str, engines: str = "") -> str:
    missed = total(f"{over_range(_MISSED, cause=cause)} {engines}".strip())
    return share(missed, total(f"{over_range(_ASKED_BLOCKS)} {engines}".strip()))


def _verdict() -> Row:
    first = share(total(over_range(_HIT, phase="first")), total(over_range(_ASKED, phase="first")))
    resumed = share(
        total(over_range(_HIT, phase="resumed")), total(over_range(_ASKED, phase="resumed"))
    )
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
                Q(first, ""),
                when_absent="idle",
            ),
            numbers(
                102,
                "Prompt tokens saved",
                "Tokens that were not computed because the cache had them. It is what you pay for "
                "the memory with: at 0, prefix caching buys nothing here.",
                TOKENS,
                Q(or_zero(total(over_range(_HIT, phase="first"))), ""),
            ),
            numbers(
                103,
                "Missed: evicted",
                "Share of the asked blocks that were missed because they, or an ancestor, had been "
                "evicted: what a larger pool could have found. Above some percent: more KV memory, "
                "or route equal prefixes to the same engine. 'unknown': nothing was asked, or the "
                "exporter has seen more names than it remembers.",
                RATIO,
                Q(
                    f"({_of_asked('evicted', _THAT_CAN_TELL)})"
                    f" + ({_of_asked('unreachable', _THAT_CAN_TELL)})",
                    "",
                ),
                steps=limits.EVICTED_SHARE,
                when_absent="unknown",
            ),
            numbers(
                104,
                "Never seen before",
                "Share of the asked blocks that no request had had: no cache of any size finds "
                "them. High where you expect repeats: prompts differ early, for instance by a date "
                "in the system prompt. 'unknown' as at the left.",
                RATIO,
                Q(_of_asked("cold", _THAT_CAN_TELL), ""),
                when_absent="unknown",
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
                Q(resumed, ""),
                when_absent="no resumption",
                link=to_dashboard("KV pool", KV_POOL),
            ),
        ],
    )


def _misses() -> Row:
    asked = total(rate(_ASKED_BLOCKS))
    return Row(
        200,
        "What was found, and why was the rest not?",
        [
            graph(
                201,
                "Of every 100 blocks asked for",
                "hit, or missed because: cold (never seen), partial (end of a prompt), evicted (it "
                "was here), unreachable (it is here, an ancestor is gone); cause unknown: more "
                "names were seen than the exporter remembers, or it lost events. Adds up to 100 %. "
                "Only orange and purple get smaller with more memory.",
                RATIO,
                Q(share(total(rate(_HIT_BLOCKS)), asked), "hit"),
                Q(
                    f"{total(rate(_MISSED), 'cause')} / on () group_left () ({asked} > 0)",
                    "{{cause}}",
                ),
                Q(share(_UNKNOWN, asked), "cause unknown"),
                stacked=True,
                colours=limits.MISS_COLOURS,
                high=1,
                height=9,
                calcs=("lastNotNull", "mean"),
                right=True,
            ),
            graph(
                202,
                "Prompt tokens asked for and found",
                "The distance between both is what prefill computes. Both fall: less traffic. Only "
                "found falls: see the causes at the left.",
                TOKENS_PER_SECOND,
                Q(total(rate(_ASKED, phase="first")), "asked for"),
                Q(total(rate(_HIT, phase="first")), "found"),
                colours={"asked for": "#55606e", "found": "green"},
                height=9,
                calcs=("lastNotNull", "mean"),
            ),
        ],
    )


def _since_when() -> Row:
    ratio = share(total(rate(_HIT, phase="first")), total(rate(_ASKED, phase="first")))
    before = ratio.replace("[$__rate_interval]", "[$__rate_interval] offset 1h")
    return Row(
        300,
        "Since when?",
        [
            graph(
                301,
                "Hit ratio against an hour ago",
                "first: new requests, now and an hour before. resumed: after a preemption, shown "
                "apart because it flatters. A step down at a deployment: the prompts changed.",
                RATIO,
                Q(ratio, "first"),
                Q(before, "first, an hour before"),
                Q(
                    share(total(rate(_HIT, phase="resumed")), total(rate(_ASKED, phase="resumed"))),
                    "resumed",
                ),
                colours={
                    "first": "green",
                    "first, an hour before": "#55606e",
                    "resumed": "purple",
                },
                high=1,
                span=8,
                calcs=("lastNotNull", "mean"),
            ),
            graph(
                302,
                "Hit ratio by engine",
                "Engines of one model should be alike. One much lower: it restarted, or the router "
                "sends equal prefixes to different engines; use prefix-aware routing.",
                RATIO,
                Q(
                    share(
                        total(rate(_HIT, phase="first"), BY_ENGINE),
                        total(rate(_ASKED, phase="first"), BY_ENGINE),
                    ),
                    ENGINE_LEGEND,
                ),
                high=1,
                span=8,
                calcs=("lastNotNull", "mean"),
            ),
            quantiles(
                303,
                "Time to first token",
                "What hits are for. It rises when the hit ratio falls: the misses are what users "
                "wait for. It rises alone: look at the queue in KV pool.",
                *(
                    Q(quantile(q, "kvscope_time_to_first_token_seconds"), f"p{q * 100:g}")
                    for q in (0.5, 0.95)
                ),
                steps=limits.FIRST_TOKEN_SECONDS,
                span=8,
            ),
        ],
    )


def _pool() -> Row:
    return Row(
        400,
        "Is there room for it?",
        [
            graph(
                401,
                "What the cache lives in",
                "The cache has what active requests leave. cached squeezed by active: hits go when "
                "load comes. free left over: the cache is not limited by memory.",
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
                "after they are gone: that traffic is what more memory would serve. cause unknown: "
                "some of these misses may be evicted ones that the exporter cannot tell.",
                BLOCKS_PER_SECOND,
                Q(total(rate("kvscope_kv_block_evictions_total")), "evicted"),
                Q(total(rate(_MISSED, cause="evicted")), "missed: evicted"),
                Q(total(rate(_MISSED, cause="unreachable")), "missed: unreachable"),
                Q(_UNKNOWN, "missed: cause unknown"),
                colours={
                    "evicted": "#55606e",
                    "missed: evicted": "orange",
                    "missed: unreachable": "purple",
                    "missed: cause unknown": "super-light-yellow",
                },
                span=8,
                height=10,
            ),
            graph(
                403,
                "Shared at this moment",
                "Blocks with more than one reader, and blocks saved by that. Sharing needs no "
                "extra memory: high values are pure profit.",
                BLOCKS,
                Q(total(series("kvscope_kv_shared_blocks")), "shared"),
                Q(total(series("kvscope_kv_deduplicated_blocks")), "saved"),
                axis="blocks",
                span=8,
                height=10,
            ),
        ],
    )


_ADVICE = """
| misses are mostly | it means | do |
|---|---|---|
| cold | prompts are new, or differ early | put what varies (date, user) at the end of the prompt; \
otherwise nothing helps |
| evicted, unreachable | they were here, and had to go | more KV memory, fewer sequences at once, \
prefix-aware routing over replicas |
| partial | prompts are short against a block | smaller `--block-size` |
| of unknown cause | more names were seen than the exporter remembers, until the server restarts, \
or it lost events | judge by evictions and hits |
| *low after a preemption* | active requests take the cache's room | relieve the pool first |
"""


def _advice() -> Row:
    return Row(500, "What to do?", [note(501, "From cause to remedy", _ADVICE, height=7)])
