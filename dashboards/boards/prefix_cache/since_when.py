"""Prefix cache: since when did it change?"""

from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import RATIO, Q, graph
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
                span=12,
                calcs=("lastNotNull", "mean"),
                height=8,
            ),
            graph(
                302,
                "Hit ratio by engine",
                "Engines of one model should be alike. One much lower: it restarted, or the router "
                "sends equal prefixes to different engines; the row of the fleet has the price.",
                RATIO,
                *outstanding(
                    formulas.hit_ratio(RATE_WINDOW, EACH_ENGINE, ENGINE), lowest=True, rank="avg"
                ),
                high=1,
                span=12,
                calcs=("lastNotNull", "mean"),
                height=8,
            ),
        ],
    )
