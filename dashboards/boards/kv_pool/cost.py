"""KV pool: what did pressure cost, in tokens and in seconds?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import (
    COUNT,
    PER_SECOND,
    RATIO,
    SECONDS,
    TOKENS,
    TOKENS_PER_SECOND,
    Q,
    graph,
)
from dashboards.kit.queries import (
    EACH_ENGINE,
    ENGINE,
    RATE_WINDOW,
    hundredths,
    over_range,
    rate,
    total,
)
from dashboards.kit.tables import Column, rows
from kvscope_monitoring import formulas
from kvscope_monitoring.formulas import share

_KIND = "mode, cause"
_BILLED = total(over_range("kvscope_preemptions_total"), _KIND)


def _in_range(what: str) -> str:
    return total(over_range(f"kvscope_preemption_{what}_total"), _KIND)


def _each(what: str) -> str:
    return share(_in_range(what), _BILLED)


def row() -> Row:
    recomputed = rate("kvscope_preemption_recomputed_tokens_total")
    return Row(
        300,
        "What did pressure cost?",
        [
            graph(
                301,
                "Preemptions",
                "Running requests that lost their blocks. out_of_blocks: the pool was full. "
                "out_of_memory: the device was; open Memory and OOM risk.",
                PER_SECOND,
                Q(total(rate("kvscope_preemptions_total"), "cause"), "{{cause}}"),
                colours={"out_of_blocks": "orange", "out_of_memory": "red"},
                span=6,
            ),
            graph(
                302,
                "Discarded tokens",
                "discarded: computed or found before the request was preempted. On resuming: "
                "found again in the cache, copied back from the host (swapped), or recomputed. "
                "The rest still waits, or its request was abandoned.",
                TOKENS_PER_SECOND,
                Q(total(rate("kvscope_preemption_discarded_tokens_total")), "discarded"),
                Q(total(rate("kvscope_preemption_found_tokens_total")), "found again"),
                Q(total(recomputed), "recomputed"),
                Q(total(rate("kvscope_preemption_swapped_tokens_total")), "swapped"),
                colours={
                    "discarded": "light-blue",
                    "found again": "green",
                    "recomputed": "orange",
                    "swapped": "purple",
                },
                span=6,
            ),
            graph(
                303,
                "Recomputed share",
                "Share of all computed tokens that had been computed before. Orange is "
                "noticeable, red a storm: running requests preempt each other. Lower "
                "--max-num-seqs until it is gone.",
                RATIO,
                *outstanding(formulas.recomputed_share(RATE_WINDOW, EACH_ENGINE, ENGINE)),
                steps=limits.RECOMPUTED_SHARE,
                span=6,
            ),
            graph(
                304,
                "Requests standing still",
                "How many preempted requests wait, on average: seconds of waiting per second, "
                "added when they resume or end. Each is a reply that stopped midway.",
                COUNT,
                Q(hundredths(total(rate("kvscope_preemption_stalled_seconds_total"))), "preempted"),
                colours={"preempted": "orange"},
                steps=limits.STALLED_REQUESTS,
                axis="requests",
                span=6,
            ),
            rows(
                305,
                "What one preemption cost",
                "Means over the time range on screen, by cause. A cache that still has most of "
                "the tokens makes preemption cheap; the stall is paid all the same. "
                "`/api/preemptions` lists the last hundred, each with the sequences that took its "
                "blocks.",
                Q(f"round({_BILLED}) > 0", "preemptions"),
                Q(_each("discarded_tokens"), "discarded"),
                Q(share(_in_range("found_tokens"), _in_range("discarded_tokens")), "found"),
                Q(_each("recomputed_tokens"), "recomputed"),
                Q(_each("stalled_seconds"), "stalled"),
                columns={
                    "mode": Column("Mode", width=140),
                    "cause": Column("Cause", width=180),
                    "preemptions": Column("Preemptions", COUNT),
                    "discarded": Column("Tokens discarded, each", TOKENS, decimals=0),
                    "found": Column("found in the cache", RATIO),
                    "recomputed": Column("Tokens recomputed, each", TOKENS, decimals=0),
                    "stalled": Column("Stood still, each", SECONDS),
                },
                height=4,
                when_absent="No preemption in this time range.",
                worst_first=("Preemptions",),
            ),
        ],
    )
