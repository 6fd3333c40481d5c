"""Curves over something other than time: Grafana's XY chart of the present state."""

from collections.abc import Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import common as cb
from grafana_foundation_sdk.builders import xychart
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as dm
from grafana_foundation_sdk.models import xychart as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.kit.links import SOURCE
from dashboards.kit.panels import LETTERS, Panel, Q, targets

_DASHED = {"fill": "dash", "dash": [8, 6]}
_LINE_SIZE, _POINT_SIZE = 6, 16


class Curve(NamedTuple):
    """A series of the panel: both queries have a value for each of its rows.

    There must be no holes, because some versions of the XY chart draw them as 0.
    """

    name: str
    x: str
    """The legend of the query with its abscissas."""
    y: str
    """The legend of the query with its ordinates."""
    colour: str
    show: str = "points+lines"
    """`points` (large, for one that stands out), `lines` (dashed, for a limit), or both."""


def curve(
    id: int,
    title: str,
    description: str,
    *queries: Q,
    drawn: Sequence[Curve],
    x_axis: str,
    x_unit: str,
    y_unit: str,
    span: int = 12,
    height: int = 10,
    when_absent: str = "",
    logarithmic: bool = False,
) -> Panel:
    """Points joined in the order of the first query's values.

    queries: evaluated once, at the end of the time range, and joined to rows by their labels.
    logarithmic: whether abscissas grow by factors.
    """
    columns = {
        f"Value #{letter}": query.legend for letter, query in zip(LETTERS, queries, strict=False)
    }
    first = queries[0].legend
    panel = (
        xychart.Panel()
        .id(id)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(y_unit)
        .min(0)
        .no_value(when_absent)
        .mapping(models.SeriesMapping.MANUAL)
        .series([_series(each) for each in drawn])
        .legend(
            cb.VizLegendOptions()
            .show_legend(True)
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
        )
        .tooltip(cb.VizTooltipOptions().mode(common.TooltipDisplayMode.SINGLE))
        .span(span)
        .height(height)
        .targets(targets(queries, instant=True, shape=PromQueryFormat.TABLE))
        .with_transformation(dm.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            dm.DataTransformerConfig(
                id_val="filterFieldsByName", options={"include": {"names": list(columns)}}
            )
        )
        .with_transformation(
            dm.DataTransformerConfig(id_val="organize", options={"renameByName": columns})
        )
        .with_transformation(
            dm.DataTransformerConfig(id_val="sortBy", options={"sort": [{"field": first}]})
        )
    )
    for each in drawn:
        panel.override_by_name(each.y, _looks(each))
    for name in dict.fromkeys(each.x for each in drawn):
        axis: dict[str, object] = {"unit": x_unit, "custom.axisLabel": x_axis}
        if logarithmic:
            axis["custom.scaleDistribution"] = {"type": "log", "log": 2}
        panel.override_by_name(name, [dm.DynamicConfigValue(*pair) for pair in axis.items()])
    return panel


def _series(drawn: Curve) -> xychart.XYSeriesConfig:
    def by_name(name: str) -> xychart.MatcherConfig:
        return xychart.MatcherConfig().id("byName").options(name)

    first_frame = xychart.MatcherConfig().id("byIndex").options(0)
    return (
        xychart.XYSeriesConfig()
        .name(xychart.XychartXYSeriesConfigName().fixed(drawn.name))
        .frame(xychart.XychartXYSeriesConfigFrame().matcher(first_frame))
        .x(xychart.XychartXYSeriesConfigX().matcher(by_name(drawn.x)))
        .y(xychart.XychartXYSeriesConfigY().matcher(by_name(drawn.y)))
    )


def _looks(drawn: Curve) -> list[dm.DynamicConfigValue]:
    size = _POINT_SIZE if drawn.show == "points" else _LINE_SIZE
    looks: dict[str, object] = {
        "color": {"mode": "fixed", "fixedColor": drawn.colour},
        "custom.show": drawn.show,
        "custom.pointSize": {"fixed": size},
        "custom.lineWidth": 2,
    }
    if drawn.show == "lines":
        looks["custom.lineStyle"] = _DASHED
    return [dm.DynamicConfigValue(name, value) for name, value in looks.items()]
