"""KV pool: will it run out of blocks?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import RATIO, SECONDS, Q, graph
from dashboards.kit.queries import BY_ENGINE, EACH_ENGINE, ENGINE, series, worst
from kvscope_exporter.catalogue import metric
from kvscope_monitoring import formulas

_PROBABILITY = "kvscope_kv_exhaustion_probability"
_SOON = 900
"""Seconds beyond which a trend of one minute is not to be trusted."""
_TIME_LEFT = (
    f"0 * ({worst(series('kvscope_kv_active_ratio'), BY_ENGINE)} > {limits.FULL})\n"
    f"or min by ({BY_ENGINE}) ({series('kvscope_kv_time_to_exhaustion_seconds')})"
)
"""0 if the pool is full: the trend of a pool that cannot fill any further would look healthy."""


def row() -> Row:
    return Row(
        800,
        "Will it run out of blocks?",
        [
            graph(
                801,
                "Probability of exhaustion",
                "Probability that within this many seconds a running request finds no block, so "
                "that one is preempted, in the engine where it is highest. Only the longest "
                "horizon rises: send new work elsewhere. All rise: it is here. A forecast of 80 % "
                "comes true about eight times in ten.",
                RATIO,
                *(
                    Q(worst(series(_PROBABILITY, horizon_seconds=horizon)), f"within {horizon} s")
                    for horizon in metric(_PROBABILITY).closed_labels["horizon_seconds"]
                ),
                colours={
                    "within 10 s": "purple",
                    "within 30 s": "orange",
                    "within 60 s": "light-blue",
                },
                high=1,
                steps=limits.EXHAUSTION_PROBABILITY,
                span=8,
                listed=True,
                when_absent="Unknown until half a minute of work has been seen, or nothing runs.",
            ),
            graph(
                802,
                "Time to exhaustion",
                "Time until active blocks fill the pool if the last minute's trend continues. 0: "
                "full. Gaps: not filling, or more than a quarter of an hour. Probability says how "
                "likely, this says how soon: act before it reaches 0.",
                SECONDS,
                *outstanding(f"({_TIME_LEFT}) < {_SOON:g}", lowest=True),
                steps=limits.SECONDS_TO_EXHAUSTION,
                calcs=("lastNotNull", "min"),
                span=8,
                when_absent="Not filling in this time range.",
            ),
            graph(
                803,
                "Committed share",
                "Blocks needed if every running request reaches its max_tokens, over the usable "
                "ones. Above 100 % is normal if clients set no max_tokens: such a request counts "
                "with the whole context. If exhaustion is probable and this is above 100 %: lower "
                "max_tokens.",
                RATIO,
                *outstanding(formulas.committed_share(EACH_ENGINE, ENGINE), rank="avg"),
                span=8,
            ),
        ],
    )
