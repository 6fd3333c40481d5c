"""Service levels: how long will the capacity last?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, RATIO, TOKENS_PER_SECOND, Q, graph
from dashboards.kit.queries import ENGINE, rate, series, total
from dashboards.kit.tables import Column, rows
from dashboards.kit.time_parts import first_token_time, late_time
from kvscope_monitoring import formulas
from kvscope_monitoring.formulas import share

_BY, _NAME = "model_name", "{{model_name}}"
_READY = total(series("kvscope_engine_ready"), _BY)
_ACTIVE = formulas.pool_usage(f"by ({_BY})", ENGINE)
_COMPUTED = total(rate("kvscope_step_tokens_total"), _BY)
_TREND = f"deriv(({_ACTIVE})[$__range:5m])"
_MEAN = f"avg_over_time(({_ACTIVE})[$__range:5m])"
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
                "By model, over the time range on screen: choose whole weeks, or a trend is only "
                "the time of day. Mean: share of all usable blocks that sequences reference. Days "
                "left: until that mean is where bursts fill single pools; order hardware before "
                "then. '-': it does not grow.",
                Q(_READY, "ready"),
                Q(_MEAN, "mean"),
                Q(f"max_over_time(({_ACTIVE})[$__range:5m])", "peak"),
                Q(f"{_TREND} * {_DAY}", "growth"),
                Q(left, "left"),
                columns={
                    "model_name": Column("Model"),
                    "ready": Column("Engines ready", COUNT),
                    "mean": Column("Mean", RATIO),
                    "peak": Column("Peak", RATIO),
                    "growth": Column("Grows by, a day", RATIO),
                    "left": Column("Days left", "suffix: d", limits.DAYS_LEFT),
                },
                height=6,
                worst_first=("Mean",),
            ),
            first_token_time(305, span=12),
            late_time(306),
            graph(
                302,
                "Active share of all pools",
                "Usable blocks that sequences reference, by model, all its engines together. Its "
                "daily peaks climb from week to week: add replicas before they reach the line.",
                RATIO,
                *outstanding(_ACTIVE, _NAME, by=_BY),
                high=1,
                steps=limits.FLEET_USAGE,
                span=8,
                calcs=("mean", "max"),
            ),
            graph(
                303,
                "Tokens computed, by engine that is ready",
                "Average throughput of one engine, by model. Where it no longer rises with the "
                "load, it is at its limit, and the queue grows instead.",
                TOKENS_PER_SECOND,
                *outstanding(share(_COMPUTED, _READY), _NAME, by=_BY),
                span=8,
                calcs=("mean", "max"),
            ),
            graph(
                304,
                "Engines ready",
                "Engines that take requests, by model. Fewer than a week ago although none was "
                "removed: find the one that did not come back.",
                COUNT,
                *outstanding(_READY, _NAME, by=_BY),
                span=8,
                calcs=("lastNotNull", "min"),
            ),
        ],
    )
