"""The frame of all dashboards: variables, links between them, alerts as annotations, refresh."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.models import dashboard as dm

from dashboards.kit.links import SOURCE
from dashboards.kit.panels import Panel
from dashboards.kit.queries import ALERT
from monitoring.addresses import RUNBOOKS

TAG = "kvscope"
EVERY_ENGINE = "kvscope_source_up"
"""A family that every engine has on its page from the start, even while it loads its model."""
RANGE = "now-30m"
"""Long enough to see what came before a bad quarter of an hour."""
REFRESH = "10s"
_CHOSEN = 'model_name=~"$model|",instance=~"$instance|"'
"""Each has an empty alternative, so that alerts without that label match as well."""
_SHOWN: Any = None  # placement: the SDK's default hides links and annotations in a menu


class Row(NamedTuple):
    """A heading and the panels below it, which fill lines of 24 columns."""

    id: int
    title: str
    panels: Sequence[Panel]


def variable(name: str, label: str, query: str, help: str) -> db.QueryVariable:
    """A variable with several values or all; its values are those in the time range."""
    return (
        db.QueryVariable(name)
        .label(label)
        .description(help)
        .datasource(SOURCE)
        .query(query)
        .refresh(dm.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dm.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(dm.VariableOption(text="All", value="$__all", selected=True))
    )


def engine_variables(family: str) -> list[db.QueryVariable]:
    """Model, server and engine, each limited by those before. family: one that every engine has."""
    model, server = 'model_name=~"$model"', 'instance=~"$instance"'
    return [
        variable(
            "model",
            "Model",
            f"label_values({family}, model_name)",
            "Name that requests ask for.",
        ),
        variable(
            "instance",
            "Server",
            f"label_values({family}{{{model}}}, instance)",
            "Address that Prometheus scrapes.",
        ),
        variable(
            "engine",
            "Engine",
            f"label_values({family}{{{model},{server}}}, engine)",
            "Number of the engine in its server; 0 where there is only one.",
        ),
    ]


def gpu_variable(family: str) -> db.QueryVariable:
    """Devices by UUID, since two servers both have a GPU 0. family: one that every device has."""
    return variable(
        "gpu",
        "GPU",
        f'label_values({family}{{instance=~"$instance"}}, uuid)',
        "By UUID.",
    )


def assemble(
    title: str,
    uid: str,
    description: str,
    variables: Iterable[db.QueryVariable],
    rows: Iterable[Row],
    alerts: str = ALERT,
) -> db.Dashboard:
    """A complete dashboard. alerts: the selector for alerts that it draws over its graphs."""
    board = (
        db.Dashboard(f"kvscope / {title}")
        .uid(uid)
        .description(description)
        .tags([TAG])
        .time(RANGE, "now")
        .refresh(REFRESH)
        .timezone("browser")
        .readonly()
        .tooltip(dm.DashboardCursorSync.CROSSHAIR)
        .link(
            db.DashboardLink("kvscope")
            .type(dm.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(False)
            .include_vars(True)
            .keep_time(True)
            .placement(_SHOWN)
        )
        .link(
            db.DashboardLink("Runbooks")
            .type(dm.DashboardLinkType.LINK)
            .icon("doc")
            .url(RUNBOOKS)
            .tooltip("What to do for each alert")
            .target_blank(True)
            .placement(_SHOWN)
        )
        .with_variable(
            db.DatasourceVariable("datasource")
            .label("Data source")
            .type("prometheus")
            .current(dm.VariableOption(text="default", value="default", selected=True))
        )
        .annotation(_alerts("Critical alerts", alerts, "critical", "red"))
        .annotation(_alerts("Other alerts", alerts, "warning|info", "orange").enable(False))
    )
    for each in variables:
        board.with_variable(each)
    for row in rows:
        board.with_row(db.Row(row.title).id(row.id))
        for panel in row.panels:
            board.with_panel(panel)
    return board


def _alerts(name: str, which: str, severities: str, colour: str) -> db.AnnotationQuery:
    """A bar over every time at which one of our alerts fired for the selection.

    An alert about a whole model has no server, one about a card no model: both are shown. Only
    critical ones are by default: under pressure there are so many others that they would tint every
    graph.
    """
    return (
        db.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .enable(True)
        .icon_color(colour)
        .expr(f'ALERTS{{alertstate="firing",{which},severity=~"{severities}",{_CHOSEN}}}')
        .title_format("{{alertname}}")
        .text_format("{{model_name}} {{instance}} {{engine}} {{gpu}}")
        .tag_keys("severity")
        .step("10s")
        .placement(_SHOWN)
    )
