"""Prefix cache: what was found, and why was the rest not?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import FULL, RATIO, TOKENS_PER_SECOND, Q, graph
from dashboards.kit.queries import rate, total
from kvscope_monitoring.formulas import share

_HIT, _ASKED = "kvscope_prefix_cache_hit_tokens_total", "kvscope_prefix_cache_queried_tokens_total"
_HIT_BLOCKS = "kvscope_prefix_cache_hit_blocks_total"
_ASKED_BLOCKS = "kvscope_prefix_cache_queried_blocks_total"
_MISSED = "kvscope_prefix_cache_missed_blocks_total"
_UNKNOWN = (
    f"clamp_min(round({total(rate(_ASKED_BLOCKS))} - {total(rate(_HIT_BLOCKS))}"
    f" - {total(rate(_MISSED))}, 1e-6), 0)"
)
"""Missed blocks per second without a cause; rounded, because differences leave a rest of 1e-15."""


def row() -> Row:
    asked = total(rate(_ASKED_BLOCKS))
    return Row(
        200,
        "What was found, and why was the rest missed?",
        [
            graph(
                201,
                "Per 100 blocks requested",
                "Hit, or the reason for the miss: cold (never seen), partial (end of a prompt), "
                "evicted (it was here), unreachable (it is here, an ancestor is gone), vetoed (it "
                "is here with its ancestors, but layers with a sliding window or a state lack "
                "their part), forgotten (cold or evicted so long ago that the exporter no longer "
                "remembers); cause unknown: the exporter lost events. Adds up to 100 %. Only "
                "orange and purple shrink with more memory.",
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
                when_absent=FULL,
            ),
            graph(
                202,
                "Prompt tokens asked for and found",
                "The gap between the two is what prefill computes. Both fall: less traffic. Only "
                "found falls: see the causes on the left.",
                TOKENS_PER_SECOND,
                Q(total(rate(_ASKED, phase="first")), "asked for"),
                Q(total(rate(_HIT, phase="first")), "found"),
                colours={"asked for": "#55606e", "found": "green"},
                height=9,
                calcs=("lastNotNull", "mean"),
            ),
        ],
    )
