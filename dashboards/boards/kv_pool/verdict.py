"""KV pool, first row: is this pool in trouble?"""

from dashboards.kit import pressure
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, RATIO, SECONDS, TOKENS, Q, numbers
from dashboards.kit.queries import (
    BY_ENGINE,
    EACH_ENGINE,
    ENGINE,
    TILE_WINDOW,
    mean,
    over_range,
    recent,
    series,
    total,
    worst,
)
from kvscope_monitoring import formulas

_PROBABILITY = series("kvscope_kv_exhaustion_probability", horizon_seconds="60")


def row() -> Row:
    return Row(
        100,
        "Is this pool in trouble?",
        [
            numbers(
                101,
                "Active share",
                "Share of the usable blocks that sequences reference, at the peak of five "
                "minutes. A full pool alone is not a fault. Orange: it is full, and requests wait "
                "for it or were preempted, or it will be within a minute; if it stays orange, add "
                "replicas or KV memory, or lower --max-num-seqs.",
                RATIO,
                *pressure.fullest_pool(),
                steps=limits.NEVER_A_FAULT,
                judged=pressure.JUDGED,
                span=6,
            ),
            numbers(
                102,
                "P(full in 60 s)",
                "Probability that within a minute a running request finds no block, so that one "
                "is preempted, in the engine where it is highest, among pools that are half full "
                "if there are any. Orange: send new work elsewhere.",
                RATIO,
                Q(f"{worst(pressure.exhaustion())} or {worst(_PROBABILITY)}", ""),
                steps=limits.EXHAUSTION_PROBABILITY,
                when_absent="no forecast yet",
                span=6,
            ),
            numbers(
                103,
                "Work lost",
                "Cost of pressure over five minutes, in the engine where it is highest. "
                "recomputed: share of the computed tokens that had been computed before. Orange: "
                "noticeable; red: running requests preempt each other. queued: how long requests "
                "waited for their first step, on average.",
                RATIO,
                Q(worst(formulas.recomputed_share(TILE_WINDOW, EACH_ENGINE, ENGINE)), "recomputed"),
                Q(worst(recent(mean("kvscope_request_queue_seconds", BY_ENGINE))), "queued"),
                steps=limits.RECOMPUTED_SHARE,
                judged={"queued": limits.UNJUDGED},
                units={"queued": SECONDS},
                when_absent="idle",
                span=6,
            ),
            numbers(
                104,
                "Preemptions",
                "Running requests that lost their blocks in the time range on screen, the tokens "
                "that had to be computed again, and how long these requests were stalled, counted "
                "when they resume or end. A few at a peak are cheap: check below what one costs "
                "before you act.",
                COUNT,
                Q(total(over_range("kvscope_preemptions_total")), "preemptions"),
                Q(
                    total(over_range("kvscope_preemption_recomputed_tokens_total")),
                    "tokens recomputed",
                ),
                Q(total(over_range("kvscope_preemption_stalled_seconds_total")), "stalled"),
                units={"tokens recomputed": TOKENS, "stalled": SECONDS},
                when_absent="no engine",
                decimals=0,
                span=6,
            ),
        ],
    )
