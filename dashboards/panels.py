"""Panels as functions: id, title and what to do first, then unit and queries; the rest is the same.

Every description ends in what to do. Ids are fixed, because links lead to panels: a row has
hundreds, its panels follow (200; 201, 202, ...).
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders import common as cb
from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.builders import heatmap as heatmaps
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, text, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, heatmap, units
from grafana_foundation_sdk.models import dashboard as dm
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.links import SOURCE, Link
from dashboards.thresholds import PLAIN, Steps

BLOCKS = units.Short
BYTES = units.BytesIEC
COUNT = units.Short
RATIO = units.PercentUnit
SECONDS = units.Seconds
TOKENS = units.Short
TOKENS_PER_SECOND = "si:tok/s"
BLOCKS_PER_SECOND = "suffix: blocks/s"
REQUESTS_PER_SECOND = units.RequestsPerSecond
PER_SECOND = "suffix:/s"

Panel = Builder[dm.Panel]
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Q(NamedTuple):
    """A query and the name of what it returns."""

    expr: str
    legend: str


def numbers(
    id: int,
    title: str,
    description: str,
    unit: str,
    *queries: Q,
    steps: Steps = PLAIN,
    span: int = 4,
    height: int = 5,
    decimals: int | None = None,
    when_absent: str = "none",
    over_range: bool = False,
    link: Link | None = None,
) -> Panel:
    """One large number a query, its background the verdict.

    over_range: the queries look at the whole time range, so they are asked once, for now.
    """
    panel = (
        stat.Panel()
        .id(id)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .no_value(when_absent)
        .mappings([_not_a_number(when_absent)])
        .thresholds(_thresholds(steps))
        .reduce_options(cb.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(
            common.BigValueColorMode.VALUE
            if steps is PLAIN
            else common.BigValueColorMode.BACKGROUND
        )
        .graph_mode(
            common.BigValueGraphMode.NONE
            if over_range or len(queries) > 1
            else common.BigValueGraphMode.AREA
        )
        .text_mode(
            common.BigValueTextMode.VALUE_AND_NAME
            if len(queries) > 1
            else common.BigValueTextMode.VALUE
        )
        .span(span)
        .height(height)
        .targets(_targets(queries, instant=over_range))
    )
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
) -> Panel:
    """Lines, or a stack. `lines`: series drawn over the stack, as what it must not pass.

    right: the legend stands beside the picture. listed: it is names only, for many series.
    """
    panel = (
        timeseries.Panel()
        .id(id)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .line_width(1)
        .fill_opacity(70 if stacked else 8)
        .show_points(common.VisibilityMode.NEVER)
        .axis_label(axis)
        .legend(
            cb.VizLegendOptions()
            .show_legend(True)
            .display_mode(
                common.LegendDisplayMode.LIST if listed else common.LegendDisplayMode.TABLE
            )
            .placement(common.LegendPlacement.RIGHT if right else common.LegendPlacement.BOTTOM)
            .calcs([] if listed else list(calcs))
        )
        .tooltip(
            cb.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.NONE if stacked else common.SortOrder.DESCENDING)
        )
        .span(span)
        .height(height)
        .targets(_targets(queries))
    )
    if stacked:
        panel.stacking(cb.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
        panel.axis_soft_min(0)  # a part can be negative; without this the axis begins at the lowest
    for name, colour in (colours or {}).items():
        panel.override_by_name(name, [_value("color", {"mode": "fixed", "fixedColor": colour})])
    for name in lines:
        panel.override_by_name(name, _OVER_THE_STACK)
    if steps is not None:
        panel.thresholds(_thresholds(steps))
        panel.thresholds_style(
            cb.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )
    if low is not None:
        panel.min(low)
    if high is not None:
        panel.max(high)
    if when_absent:
        panel.no_value(when_absent)
    if link is not None:
        panel.data_links([link.builder()])
    return panel


def quantiles(id: int, title: str, description: str, *queries: Q, **options: Any) -> Panel:
    """A graph of seconds."""
    return graph(id, title, description, SECONDS, *queries, **options)


def heat(
    id: int, title: str, description: str, expr: str, *, span: int = 12, height: int = 8
) -> Panel:
    """A histogram over time. expr: `buckets(...)`, in seconds."""
    return (
        heatmaps.Panel()
        .id(id)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(SECONDS)
        .calculate(False)
        .cell_gap(1)
        .color(
            heatmaps.HeatmapColorOptions()
            .mode(heatmap.HeatmapColorMode.SCHEME)
            .scheme("Oranges")
            .steps(64)
            .fill("dark-orange")
            .exponent(0.5)
        )
        .y_axis(heatmaps.YAxisConfig().unit(SECONDS))
        .span(span)
        .height(height)
        .targets(_targets([Q(expr, "{{le}}")], shape=PromQueryFormat.HEATMAP))
    )


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
    """What was the case, from when to when. meanings: value to text and colour."""
    values = {
        str(value): dm.ValueMappingResult(text=name, color=colour, index=index)
        for index, (value, (name, colour)) in enumerate(meanings.items())
    }
    return (
        statetimeline.Panel()
        .id(id)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .mappings([dm.ValueMap(options=values)])
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
        .targets(_targets(queries))
    )


class Column(NamedTuple):
    """A column of a table: how one label or one query's value looks."""

    title: str
    unit: str = ""
    steps: Steps | None = None
    link: Link | None = None
    width: int | None = None
    meanings: Mapping[int, tuple[str, str]] | None = None
    """Value to text and background."""


def rows(
    id: int,
    title: str,
    description: str,
    *queries: Q,
    columns: Mapping[str, Column],
    span: int = 24,
    height: int = 8,
    when_absent: str = "",
    worst_first: str = "",
) -> Panel:
    """A table of what is now: one query a value column (its legend says which), joined by labels.

    columns: by label, or by a query's legend, in the order shown. Other labels are hidden.
    worst_first: title of the column whose largest value comes first.
    """
    letters = [f"Value #{letter}" for letter in _LETTERS] if len(queries) > 1 else ["Value"]
    values = {letters[index]: query.legend for index, query in enumerate(queries)}
    fields = [next((v for v, shown in values.items() if shown == name), name) for name in columns]
    renamed = {f: columns[name].title for f, name in zip(fields, columns, strict=True)}
    panel = (
        table.Panel()
        .id(id)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .no_value(when_absent)
        .span(span)
        .height(height)
        .targets(_targets(queries, instant=True, shape=PromQueryFormat.TABLE))
        .with_transformation(dm.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            dm.DataTransformerConfig(
                id_val="filterFieldsByName", options={"include": {"names": list(fields)}}
            )
        )
        .with_transformation(
            dm.DataTransformerConfig(
                id_val="organize",
                options={
                    "indexByName": {f: index for index, f in enumerate(fields)},
                    "renameByName": renamed,
                },
            )
        )
    )
    if worst_first:
        panel.sort_by([cb.TableSortByFieldState().display_name(worst_first).desc(True)])
    for column in columns.values():
        panel.override_by_name(column.title, list(_column_properties(column)))
    return panel


def note(id: int, title: str, content: str, *, span: int = 24, height: int = 8) -> Panel:
    """Markdown."""
    return (
        text.Panel()
        .id(id)
        .title(title)
        .description(f"{title}, in words.")
        .span(span)
        .height(height)
        .content(content)
    )


_OVER_THE_STACK = [
    dm.DynamicConfigValue("custom.stacking", {"mode": "none"}),
    dm.DynamicConfigValue("custom.fillOpacity", 0),
    dm.DynamicConfigValue("custom.lineWidth", 2),
    dm.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}),
]


def _value(key: str, value: object) -> dm.DynamicConfigValue:
    return dm.DynamicConfigValue(key, value)


def _column_properties(column: Column) -> Iterable[dm.DynamicConfigValue]:
    yield _value("noValue", "-")  # or a missing cell says what the whole table says when empty
    if column.unit:
        yield _value("unit", column.unit)
    if column.width is not None:
        yield _value("custom.width", column.width)
    if column.link is not None:
        yield _value("links", [column.link.model()])
    if column.steps is not None:
        nothing = {"match": "null+nan", "result": {"text": "-", "color": "transparent"}}
        yield _value("mappings", [{"type": "special", "options": nothing}])
        steps = [{"value": value, "color": colour} for value, colour in column.steps]
        yield _value("thresholds", {"mode": "absolute", "steps": steps})
    if column.meanings is not None:
        options = {
            str(value): {"text": name, "color": colour, "index": index}
            for index, (value, (name, colour)) in enumerate(column.meanings.items())
        }
        yield _value("mappings", [{"type": "value", "options": options}])
    if column.steps is not None or column.meanings is not None:
        yield _value("custom.cellOptions", {"type": "color-background", "mode": "basic"})


def _not_a_number(text: str) -> dm.SpecialValueMap:
    """A quantile of nothing is NaN."""
    return dm.SpecialValueMap(
        options=dm.DashboardSpecialValueMapOptions(
            match=dm.SpecialValueMatch.NA_N,
            result=dm.ValueMappingResult(text=text, color="transparent"),
        )
    )


def _thresholds(steps: Steps) -> db.ThresholdsConfig:
    return (
        db.ThresholdsConfig()
        .mode(dm.ThresholdsMode.ABSOLUTE)
        .steps([dm.Threshold(value=value, color=colour) for value, colour in steps])
    )


def _targets(
    queries: Iterable[Q],
    *,
    instant: bool = False,
    shape: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> list[Any]:
    targets = []
    for letter, query in zip(_LETTERS, queries, strict=False):
        target = (
            prometheus.Dataquery()
            .datasource(SOURCE)
            .expr(query.expr)
            .legend_format(query.legend)
            .format(shape)
            .ref_id(letter)
        )
        targets.append(target.instant() if instant else target.range())
    return targets
