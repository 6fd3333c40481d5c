"""KV pool: what did pressure cost, in tokens and in seconds?"""

from dashboards.kit.frame import Row
from dashboards.kit.panels import (
    COUNT,
    PER_SECOND,
    RATIO,
    SECONDS,
    TOKENS,
    Q,
    graph,
)
from dashboards.kit.queries import (
    over_range,
    rate,
    total,
)
from dashboards.kit.tables import Column, rows
from kvscope_monitoring.formulas import share

_KIND = "mode, cause"
_BILLED = total(over_range("kvscope_preemptions_total"), _KIND)


def _in_range(what: str) -> str:
    return total(over_range(f"kvscope_preemption_{what}_total"), _KIND)


def _each(what: str) -> str:
    return share(_in_range(what), _BILLED)


def row() -> Row:
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
                span=8,
                height=5,
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
                    "mode": Column("Mode", width=100),
                    "cause": Column("Cause", width=130),
                    "preemptions": Column("Preemptions", COUNT),
                    "discarded": Column("Tokens discarded, each", TOKENS, decimals=0),
                    "found": Column("found in the cache", RATIO),
                    "recomputed": Column("Tokens recomputed, each", TOKENS, decimals=0),
                    "stalled": Column("Mean stall", SECONDS),
                },
                height=5,
                when_absent="No preemption in this time range.",
                worst_first=("Preemptions",),
                span=16,
            ),
        ],
    )
