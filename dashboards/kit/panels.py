"""Panels as functions of id, title, description, unit and queries; the rest is common to all.

Every description says what to do. Ids are fixed, because links lead to panels: a row has the
hundred, and its panels follow (200; 201, 202, ...).
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders import common as cb
from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as dm
from grafana_foundation_sdk.models import units as of
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.kit.links import SOURCE, Link
from dashboards.kit.thresholds import PLAIN, Steps, limit_lines

BLOCKS = "locale"
"""Whole numbers: 637 + 898 + 1 = 1,536 can be checked, 1.54 K cannot."""
BYTES = of.BytesIEC
COUNT = of.Short
RATIO = of.PercentUnit
SECONDS = of.Seconds
TOKENS = "locale"
TOKENS_PER_SECOND = "count:tok/s"
"""Not `si:`, which writes a third of a token as 334 mtok/s."""
BLOCKS_PER_SECOND = of.Short
"""Labelled on the axis: as a unit it would take a third of a narrow graph."""
A_SECOND = "blocks a second"
REQUESTS_PER_SECOND = of.RequestsPerSecond
PER_SECOND = "suffix:/s"
TIMES = "suffix:x"

Panel = Builder[dm.Panel]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Names of a panel's queries, in order."""
COARSE = "15s"
"""Interval between points of a coarse graph: a third of the points of a five-second scrape."""


_NARROW = 8
"""Width, of 24 columns, in which numbers beside each other are too small to read."""
_NAME_SIZE, _FIGURE_SIZE = 13, 26
"""Font size for panels with several numbers: by default each would get a different size."""
_FROM_AFAR = 18
_LOW = 3
"""Height in which they cannot be stacked."""

FULL = "Only from an exporter with --detail full."
"""Text of a panel whose families are not on the default page."""

MEDIAN = "median of all"
"""Legend of a line that stands for the many that are not drawn."""


class Q(NamedTuple):
    """A query and the legend of its result."""

    expr: str
    legend: str
    steps: Steps | None = None
    """For a number that is judged differently from its panel."""


def numbers(
    id: int,
    title: str,
    description: str,
    unit: str,
    *queries: Q,
    steps: Steps = PLAIN,
    judged: Mapping[str, Steps] | None = None,
    units: Mapping[str, str] | None = None,
    span: int = 4,
    height: int = 5,
    decimals: int | None = None,
    words: Mapping[int, tuple[str, str]] | None = None,
    when_absent: str = "none",
    link: Link | None = None,
) -> Panel:
    """One large number per query, with the verdict as its background.

    judged, units: thresholds and units that differ from the panel's, by the query's name.
    words: the text and colour of values that are codes.

    The queries are evaluated once, at the end of the time range: otherwise the last value of an
    ended curve would be shown as the present one.
    """
    panel = (
        stat.Panel()
        .id(id)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .no_value(when_absent)
        .mappings([_not_a_number(when_absent), *_words(words or {})])
        .thresholds(_thresholds(steps))
        .reduce_options(cb.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(
            common.BigValueColorMode.VALUE
            if steps is PLAIN
            else common.BigValueColorMode.BACKGROUND
        )
        .graph_mode(common.BigValueGraphMode.NONE)
        .text_mode(
            common.BigValueTextMode.VALUE_AND_NAME
            if any(query.legend for query in queries)
            else common.BigValueTextMode.VALUE
        )
        .span(span)
        .height(height)
        .targets(targets(queries, instant=True))
    )
    names = {query.legend for query in queries}
    if len(names) > (1 if span <= _NARROW else 2):
        panel.text(cb.VizTextDisplayOptions().title_size(_NAME_SIZE).value_size(_FIGURE_SIZE))
        panel.wide_layout(False)
    if "{{" in queries[0].legend:
        panel.text(cb.VizTextDisplayOptions().title_size(_FROM_AFAR).value_size(2 * _FROM_AFAR))
        panel.wide_layout(False)
    if len(names) > 1 and span <= _NARROW and height > _LOW:
        panel.orientation(common.VizOrientation.HORIZONTAL)  # a line for each, or names are tiny
    for letter, query in zip(LETTERS, queries, strict=False):
        if query.steps is not None:
            limits = dm.DynamicConfigValue("thresholds", _thresholds(query.steps).build())
            panel.override_by_query(letter, [limits])
    for name, others in (judged or {}).items():
        limits = dm.DynamicConfigValue("thresholds", _thresholds(others).build())
        panel.override_by_name(name, [limits])
    for name, other in (units or {}).items():
        panel.override_by_name(name, [dm.DynamicConfigValue("unit", other)])
    if decimals is None and unit == RATIO:
        decimals = 1
    if decimals is not None:
        panel.decimals(decimals)
    if link is not None:
        panel.data_links([link.builder()])
    return panel


def graph(
    id: int,
    title: str,
    description: str,
    unit: str,
    *queries: Q,
    axis: str = "",
    stacked: bool = False,
    colours: Mapping[str, str] | None = None,
    lines: Iterable[str] = (),
    steps: Steps | None = None,
    low: float | None = 0,
    high: float | None = None,
    span: int = 12,
    height: int = 8,
    calcs: tuple[str, ...] = ("lastNotNull", "max"),
    right: bool = False,
    listed: bool = False,
    link: Link | None = None,
    when_absent: str = "",
    exemplars: bool = False,
    coarse: bool = False,
) -> Panel:
    """Lines, or a stack. lines: series drawn over the stack, such as a limit.

    right: the legend is beside the graph, as it is in every wide one. listed: the legend below it
    has only names, as it has for more series than a table shows without scrolling.
    coarse: at most one point per COARSE, for queries that would take a fleet's Prometheus a second.
    """
    panel = (
        timeseries.Panel()
        .id(id)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .line_width(0 if stacked else 1)  # the line of a zero part would hide the stack
        .fill_opacity(85 if stacked else 0)  # ten lines with a little make mud
        .show_points(common.VisibilityMode.NEVER)
        .axis_label(axis)
        .legend(_legend(queries, calcs=calcs, right=right or span > _NARROW, listed=listed))
        .tooltip(
            cb.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.NONE if stacked else common.SortOrder.DESCENDING)
        )
        .span(span)
        .height(height)
        .targets(targets(queries, exemplars=exemplars))
    )
    if coarse:
        panel.interval(COARSE)
    if stacked:
        panel.stacking(cb.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
        panel.axis_soft_min(0)  # a part can be negative; without this the axis begins at the lowest
    for name in lines:
        panel.override_by_regexp(f"/^{name}/", _OVER_THE_STACK)
    for name, colour in {**_QUANTILES, **(colours or {})}.items():
        if name in _QUANTILES and not any(query.legend == name for query in queries):
            continue
        panel.override_by_name(
            name, [dm.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})]
        )
    for name, looks in _DRAWN_APART.items():
        if name in (query.legend for query in queries):
            panel.override_by_name(name, looks)
    if steps is not None:
        panel.thresholds(_thresholds(limit_lines(steps)))
        panel.thresholds_style(
            cb.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )
    if low is not None:
        panel.min(low)
    if high is not None:
        panel.max(high)
    elif unit in _LEAST_HIGH and not stacked:
        panel.axis_soft_max(_LEAST_HIGH[unit])
    if when_absent:
        panel.no_value(when_absent)
    if link is not None:
        panel.data_links([link.builder()])
    return panel


_LEAST_HIGH = {COUNT: 1, PER_SECOND: 1, BYTES: 2**20, "binBps": 2**10}
"""Minimum end of a graph's axis: for only zeros it would end at 100 or at 96 B."""


def quantiles(id: int, title: str, description: str, *queries: Q, **options: Any) -> Panel:
    """A graph of seconds, with exemplars: points that lead to the trace of a request."""
    return graph(id, title, description, SECONDS, *queries, exemplars=True, **options)


def timeline(
    id: int,
    title: str,
    description: str,
    *queries: Q,
    meanings: Mapping[int, tuple[str, str]],
    span: int = 12,
    height: int = 8,
    when_absent: str = "",
) -> Panel:
    """States over time. meanings: the text and colour of each value."""
    return (
        statetimeline.Panel()
        .id(id)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .mappings(_words(meanings))
        .no_value(when_absent)
        .show_value(common.VisibilityMode.NEVER)
        .row_height(0.8)
        .legend(
            cb.VizLegendOptions()
            .show_legend(True)
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
        )
        .span(span)
        .height(height)
        .targets(targets(queries))
    )


def _legend(
    queries: Iterable[Q], *, calcs: tuple[str, ...], right: bool, listed: bool
) -> cb.VizLegendOptions:
    """A table below a graph has room for two lines; more are a list of names, which is whole.

    Beside a graph, the line that stands out most comes first.
    """
    queries = list(queries)
    many = len(queries) > _ROWS_BELOW or any("{{" in query.legend for query in queries)
    listed = not right and (listed or many)
    legend = (
        cb.VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.LIST if listed else common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.RIGHT if right else common.LegendPlacement.BOTTOM)
        .calcs([] if listed else list(calcs))
    )
    if any("{{" in query.legend for query in queries) and not listed:
        lowest = any("bottomk(" in query.expr for query in queries)
        legend.sort_by(_CALC_NAMES[calcs[-1]]).sort_desc(not lowest)
    return legend


_CALC_NAMES = {"lastNotNull": "Last *", "max": "Max", "min": "Min", "mean": "Mean"}
"""Grafana's headings of their columns."""


OBJECTIVE = "target"
"""Legend of a line that is the promise, not a measurement."""

_ROWS_BELOW = 2
_QUANTILES = {"p50": "blue", "p95": "orange", "p99": "purple"}
"""Their colours on every board, which are easy to tell apart."""


def _apart(colour: str) -> list[dm.DynamicConfigValue]:
    return [
        dm.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour}),
        dm.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}),
        dm.DynamicConfigValue("custom.lineWidth", 2),
        dm.DynamicConfigValue("custom.fillOpacity", 0),
    ]


_DRAWN_APART = {MEDIAN: _apart("text"), OBJECTIVE: _apart("red")}
_OVER_THE_STACK = [
    dm.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": "text"}),
    dm.DynamicConfigValue("custom.stacking", {"mode": "none"}),
    dm.DynamicConfigValue("custom.fillOpacity", 0),
    dm.DynamicConfigValue("custom.lineWidth", 2),
    dm.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}),
]


def _not_a_number(text: str) -> dm.SpecialValueMap:
    """Show NaN, the quantile of no observations, as no value."""
    return dm.SpecialValueMap(
        options=dm.DashboardSpecialValueMapOptions(
            match=dm.SpecialValueMatch.NA_N,
            result=dm.ValueMappingResult(text=text, color="transparent"),
        )
    )


def _words(meanings: Mapping[int, tuple[str, str]]) -> list[Any]:
    values = {
        str(value): dm.ValueMappingResult(text=name, color=colour, index=index)
        for index, (value, (name, colour)) in enumerate(meanings.items())
    }
    return [dm.ValueMap(options=values)] if values else []


def _thresholds(steps: Steps) -> db.ThresholdsConfig:
    return (
        db.ThresholdsConfig()
        .mode(dm.ThresholdsMode.ABSOLUTE)
        .steps([dm.Threshold(value=value, color=colour) for value, colour in steps])
    )


def targets(
    queries: Iterable[Q],
    *,
    instant: bool = False,
    exemplars: bool = False,
    shape: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> list[Any]:
    """The queries in Grafana's form. instant: evaluated now, not over the time range."""
    made = []
    for letter, query in zip(LETTERS, queries, strict=False):
        target = (
            prometheus.Dataquery()
            .datasource(SOURCE)
            .expr(query.expr)
            .legend_format(query.legend)
            .format(shape)
            .ref_id(letter)
        )
        if exemplars:
            target.exemplar(True)
        made.append(target.instant() if instant else target.range())
    return made
