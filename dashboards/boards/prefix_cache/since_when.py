"""Prefix cache: since when did it change?"""

from dashboards.kit.fleet import outstanding, quantile_lines
from dashboards.kit.frame import Row
from dashboards.kit.levels import FIRST_TOKEN_OBJECTIVE
from dashboards.kit.links import FLEET_CACHE, to_dashboard
from dashboards.kit.panels import RATIO, Q, graph, quantiles
from dashboards.kit.queries import EACH_ENGINE, ENGINE, RATE_WINDOW, WHOLE_RANGE
from kvscope_monitoring import formulas


def row() -> Row:
    ratio = formulas.hit_ratio(RATE_WINDOW, selector=ENGINE)
    before = ratio.replace(f"[{RATE_WINDOW}]", f"[{RATE_WINDOW}] offset {WHOLE_RANGE}")
    return Row(
        300,
        "Since when?",
        [
            graph(
                301,
                "Hit ratio, now and in the preceding range",
                "first: new requests, on screen and in the preceding range of the same length; "
                "choose an hour to compare with an hour ago. resumed: after a preemption, shown "
                "apart because it flatters the cache. A step down at a deployment: the prompts "
                "changed.",
                RATIO,
                Q(ratio, "first"),
                Q(before, "first, the range before"),
                Q(
                    formulas.hit_ratio(RATE_WINDOW, selector=ENGINE, phase="resumed"),
                    "resumed",
                ),
                colours={
                    "first": "green",
                    "first, the range before": "#55606e",
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
                "sends equal prefixes to different engines; Fleet cache says how much that costs.",
                RATIO,
                *outstanding(
                    formulas.hit_ratio(RATE_WINDOW, EACH_ENGINE, ENGINE), lowest=True, rank="avg"
                ),
                high=1,
                span=8,
                calcs=("lastNotNull", "mean"),
                link=to_dashboard("Fleet cache", FLEET_CACHE),
            ),
            quantiles(
                303,
                "Time to first token",
                "The latency that hits reduce. If it rises when the hit ratio falls, users wait "
                "for the misses. If it rises alone, look at the queue in KV pool.",
                *quantile_lines("kvscope_time_to_first_token_seconds", 0.5, 0.95),
                FIRST_TOKEN_OBJECTIVE,
                span=8,
            ),
        ],
    )
