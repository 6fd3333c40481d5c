"""Service levels: how long will the capacity last?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, RATIO, Q, graph
from dashboards.kit.queries import ENGINE, series, total
from dashboards.kit.tables import Column, rows
from kvscope_monitoring import formulas

_BY, _NAME = "model_name", "{{model_name}}"
_READY = total(series("kvscope_engine_ready"), _BY)
_ACTIVE = formulas.pool_usage(f"by ({_BY})", ENGINE)
_WEEK = "7d:5m"
_TREND = (
    f"(deriv(({_ACTIVE})[{_WEEK}]) and on ({_BY}) last_over_time(({_ACTIVE})[1h:5m] offset 2d))"
)
"""Over a week; absent until there are two days of history, because within one day a trend is only
the time of day."""
_MEAN = f"avg_over_time(({_ACTIVE})[{_WEEK}])"
_DAY = 86_400


def row() -> Row:
    left = f"({limits.FULL_FLEET} - {_MEAN}) / ({_TREND} * {_DAY} > 0)"
    return Row(
        300,
        "How long does the capacity last?",
        [
            rows(
                301,
                "Trend of the pools",
                "By model, over the last seven days. Mean: share of all usable blocks that "
                "sequences reference. Days left: until that mean is where bursts fill single "
                "pools; order hardware before then. '-': it does not grow, or there are less than "
                "two days of history.",
                Q(_READY, "ready"),
                Q(_MEAN, "mean"),
                Q(f"max_over_time(({_ACTIVE})[{_WEEK}])", "peak"),
                Q(f"{_TREND} * {_DAY}", "growth"),
                Q(left, "left"),
                columns={
                    "model_name": Column("Model"),
                    "ready": Column("Engines ready", COUNT),
                    "mean": Column("Mean", RATIO),
                    "peak": Column("Peak", RATIO),
                    "growth": Column("Grows by, a day", RATIO, decimals=1),
                    "left": Column("Days left", "suffix: d", limits.DAYS_LEFT, decimals=0),
                },
                height=5,
                worst_first=("Mean",),
                span=24,
            ),
            graph(
                302,
                "Active share of all pools",
                "Usable blocks that sequences reference, by model, all its engines together. Its "
                "daily peaks climb from week to week: add replicas before they reach the line.",
                RATIO,
                *outstanding(_ACTIVE, _NAME, by=_BY),
                high=1,
                steps=limits.FLEET_USAGE,
                span=24,
                calcs=("mean", "max"),
                height=7,
            ),
        ],
    )
