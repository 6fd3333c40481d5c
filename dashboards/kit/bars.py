"""Bars beside their names: the present values of a few figures that belong together."""

from collections.abc import Mapping

from grafana_foundation_sdk.builders import bargauge
from grafana_foundation_sdk.builders import common as cb
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as dm

from dashboards.kit.links import SOURCE, Link
from dashboards.kit.panels import Panel, Q, targets

_NAME_SIZE = 14


def bars(
    id: int,
    title: str,
    description: str,
    unit: str,
    *queries: Q,
    colours: Mapping[str, str],
    high: float | None = None,
    decimals: int = 1,
    span: int = 10,
    height: int = 9,
    when_absent: str = "none",
    link: Link | None = None,
) -> Panel:
    """One bar per query, from 0, in the order of the queries.

    They are evaluated once, at the end of the time range. colours: by the query's name.
    """
    panel = (
        bargauge.Panel()
        .id(id)
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .decimals(decimals)
        .min(0)
        .no_value(when_absent)
        .reduce_options(cb.ReduceDataOptions().calcs(["lastNotNull"]))
        .orientation(common.VizOrientation.HORIZONTAL)
        .display_mode(common.BarGaugeDisplayMode.BASIC)
        .value_mode(common.BarGaugeValueMode.TEXT)
        .name_placement(common.BarGaugeNamePlacement.LEFT)
        .show_unfilled(True)
        .text(cb.VizTextDisplayOptions().title_size(_NAME_SIZE))
        .span(span)
        .height(height)
        .targets(targets(queries, instant=True))
    )
    if high is not None:
        panel.max(high)
    for name, colour in colours.items():
        panel.override_by_name(
            name, [dm.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})]
        )
    if link is not None:
        panel.data_links([link.builder()])
    return panel
