"""Lines for any number of engines: those that stand out, and the median of all."""

from dashboards.kit.panels import MEDIAN, Q
from dashboards.kit.queries import (
    BY_ENGINE,
    ENGINE,
    ENGINE_LEGEND,
    OF_THE_SERVERS,
    quantile,
    quantile_apart,
    rate,
    total,
)

SHOWN = 6
"""Number of lines whose legend is whole in a third of a board, and that can be distinguished."""


def outstanding(
    expr: str,
    legend: str = ENGINE_LEGEND,
    *,
    by: str = BY_ENGINE,
    lowest: bool = False,
    rank: str = "",
) -> tuple[Q, Q]:
    """The highest lines of the time range, and the median of all if there are more than SHOWN.

    expr: one series for each combination of the labels `by`. lowest: the lowest instead.
    rank: `avg`, for values that many engines reach for a moment, such as a full pool; by default
    the extreme counts.

    They are those of the whole range, chosen at its end: topk alone would choose again at every
    step, and draw many more lines.
    """
    return among(expr, legend, by=by, lowest=lowest, rank=rank), median(expr)


def among(
    expr: str,
    legend: str = ENGINE_LEGEND,
    *,
    by: str = BY_ENGINE,
    lowest: bool = False,
    rank: str = "",
    most: int = SHOWN,
) -> Q:
    """Only these, for panels in which a median has no place. most: their number."""
    extreme, choose = ("min", "bottomk") if lowest else ("max", "topk")
    whole = f"{rank or extreme}_over_time(({expr})[$__range:$__interval] @ end())"
    return Q(f"({expr})\nand on ({by}) {choose}({most}, {whole})", legend)


def largest(name: str, label: str) -> tuple[Q, Q]:
    """Rates of a family that names its largest: of many engines SHOWN in all, and all others."""
    every = total(rate(name))
    top = among(
        total(rate(name, f'{ENGINE},{label}!="other"'), label),
        f"{{{{{label}}}}}",
        by=label,
        rank="avg",
    )
    return top, Q(f"{every} - (sum({top.expr}) or 0 * {every})", "other")


def median(expr: str) -> Q:
    """The median of all lines; absent if all are drawn."""
    return Q(f"quantile(0.5, {expr}) and on () (count({expr}) > {SHOWN})", MEDIAN)


def quantile_lines(name: str, *quantiles: float, legend: str = "p{}") -> list[Q]:
    """Quantiles of a histogram over all engines, or of each model where engines have different
    bounds."""
    lines = []
    for q in quantiles:
        text = legend.format(f"{q * 100:g}")
        lines.append(Q(quantile(q, name), text))
        if name in OF_THE_SERVERS:
            lines.append(Q(quantile_apart(q, name), f"{text}, {{{{model_name}}}}"))
    return lines
