"""KV pool, first row: is this pool in trouble?"""

from dashboards.kit import pressure
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, RATIO, SECONDS, TOKENS, Q, numbers
from dashboards.kit.queries import (
    ENGINE,
    over_range,
    series,
    total,
    worst,
)
from monitoring import formulas

_CAPACITY = series("kvscope_kv_capacity_blocks")
_COMMITTED = series("kvscope_kv_committed_blocks")


def row() -> Row:
    return Row(
        100,
        "Is this pool in trouble?",
        [
            numbers(
                101,
                "Active share",
                "Share of the usable blocks that sequences reference. A full pool is no fault by "
                "itself. Orange: it is full, and requests wait for it or were preempted; if it "
                "stays orange, add replicas or KV memory, or lower --max-num-seqs.",
                RATIO,
                *pressure.fullest_pool(),
                steps=limits.NEVER_A_FAULT,
                judged=pressure.JUDGED,
                span=4,
            ),
            numbers(
                102,
                "Exhausted in 1 min",
                "Probability that within a minute a running request finds no block, so that one is "
                "preempted; of the engine where that is highest. Orange: send new work elsewhere. "
                "'not yet': fewer than twenty requests have ended.",
                RATIO,
                Q(worst(series("kvscope_kv_exhaustion_probability", horizon_seconds="60")), ""),
                steps=limits.EXHAUSTION_PROBABILITY,
                when_absent="not yet",
                span=4,
            ),
            numbers(
                103,
                "Committed share",
                "Blocks needed if every running request goes on to its max_tokens, over the usable "
                "ones. A chat without max_tokens counts with the whole context: above 100 % is "
                "normal then. With a full pool it means preemption: lower max_tokens or "
                "--max-num-seqs.",
                RATIO,
                Q(formulas.committed_share(selector=ENGINE), ""),
                steps=limits.COMMITTED_SHARE,
                span=4,
            ),
            numbers(
                104,
                "Preemptions",
                "Running requests that lost their blocks in the time range on screen. A few in a "
                "peak are cheap: see below what they cost before you act.",
                COUNT,
                Q(total(over_range("kvscope_preemptions_total")), ""),
                when_absent="no engine",
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                decimals=0,
                span=4,
            ),
            numbers(
                105,
                "Tokens recomputed",
                "Tokens that preemptions discarded and that had to be computed again, in the time "
                "range on screen. Divide by tokens per second for the GPU time they took.",
                TOKENS,
                Q(total(over_range("kvscope_preemption_recomputed_tokens_total")), ""),
                when_absent="no engine",
                span=4,
            ),
            numbers(
                106,
                "Seconds stalled",
                "Time that all preempted requests together stood still in the time range on "
                "screen, counted when they resume or end. Users see it as a reply that stops "
                "midway.",
                SECONDS,
                Q(total(over_range("kvscope_preemption_stalled_seconds_total")), ""),
                when_absent="no engine",
                span=4,
            ),
        ],
    )
