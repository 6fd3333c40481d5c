"""The frame of all dashboards: variables, links between them, alerts as annotations, refresh."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as dm

from dashboards.kit.links import SOURCE, VLLM
from dashboards.kit.panels import Panel
from dashboards.kit.queries import ALERT, ENGINE, TARGET, server_age
from dashboards.kit.variables import (
    EVERY_ENGINE,
    Levels,
    engine_variables,
    filters,
    gpu_variable,
    level_variables,
    place_variables,
)
from kvscope_monitoring.addresses import RUNBOOKS

__all__ = ["Row", "assemble", "engine_variables", "every_variable"]

TAG = "kvscope"
RANGE = "now-30m"
"""Long enough to see what preceded a bad quarter of an hour."""
REFRESH = "10s"
_CHOSEN = ",".join(
    f'{label}=~"${variable}|"'
    for label, variable in {
        **{place: place for place in ("cluster", "namespace", "pod")},
        **{"model_name": "model", "instance": "instance"},
    }.items()
)
"""Each has an empty alternative, so that alerts without that label match as well."""
_PLACES_FROM = {VLLM: "vllm:num_requests_running"}
"""Families of dashboards whose servers do not have EVERY_ENGINE, by uid."""
_ROLLED_OUT = "cluster, namespace, model_name"
OPEN_ROWS = 3
"""Rows that are open at first; the others are for looking things up, not for watching."""
START_SECONDS = 60
"""Time for which a start is marked: longer than most scrape intervals, short compared with a
range."""
_JUST = "15s"
"""Time for which the beginning of an alert is marked."""
_SHOWN: Any = None  # placement: the SDK's default hides links and annotations in a menu


Variable = Builder[dm.VariableModel]


class Row(NamedTuple):
    """A heading and the panels below it, which fill lines of 24 columns."""

    id: int
    title: str
    panels: Sequence[Panel]

    def height(self) -> int:
        """Height: the sum over its lines of panels; panels of one line are equally high."""
        boxes = [panel.build().grid_pos for panel in self.panels]
        return sum(box.w * box.h for box in boxes if box is not None) // 24


def every_variable(
    *, levels: Levels = "none", engine: bool = False, gpu: bool = False
) -> list[Variable]:
    """The variables of our dashboards, few of them shown; links carry the others anyway.

    levels: promises that can be chosen. engine, gpu: whether one of several can be chosen.
    """
    return [
        *engine_variables(EVERY_ENGINE, engine=engine),
        gpu_variable("kvscope_gpu_up", shown=gpu),
        *level_variables(levels),
    ]


def assemble(
    title: str,
    uid: str,
    description: str,
    variables: Iterable[Variable],
    rows: Iterable[Row],
    alerts: str = ALERT,
    *,
    since: str = RANGE,
) -> db.Dashboard:
    """A complete dashboard, with place variables before its own.

    alerts: the selector for alerts drawn over its graphs. since: the time range.
    """
    board = (
        db.Dashboard(f"kvscope / {title}")
        .uid(uid)
        .description(description)
        .tags([TAG])
        .time(since, "now")
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
        .annotation(_starts(_PLACES_FROM.get(uid, EVERY_ENGINE)))
    )
    places = place_variables(_PLACES_FROM.get(uid, EVERY_ENGINE))
    for each in (*places, *variables, filters()):
        board.with_variable(each)
    line = 0
    for index, row in enumerate(rows):
        folded = index >= OPEN_ROWS
        place = dm.GridPos(h=1, w=24, x=0, y=line)  # otherwise a folded row would leave a hole
        heading = db.Row(row.title).id(row.id).collapsed(folded).grid_pos(place)
        line += 1 if folded else 1 + row.height()
        for panel in row.panels if folded else ():
            heading.with_panel(panel)
        board.with_row(heading)
        for panel in () if folded else row.panels:
            board.with_panel(panel)
    return board


def _alerts(name: str, which: str, severities: str, colour: str) -> db.AnnotationQuery:
    """A mark where one of our alerts began to fire for the selection: a bar over its whole duration
    would hide what is under it.

    An alert about a whole model has no server, one about a card no model: both are shown. Only
    critical ones are on by default: under pressure there are many others.
    """
    firing = f'ALERTS{{alertstate="firing",{which},severity=~"{severities}",{_CHOSEN}}}'
    return (
        db.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .enable(True)
        .icon_color(colour)
        .expr(f"{firing} unless {firing} offset {_JUST}")
        .title_format("{{alertname}}")
        .text_format("{{model_name}} {{instance}} {{engine}} {{gpu}}")
        .tag_keys("severity")
        .step("10s")
        .placement(_SHOWN)
    )


def _starts(family: str) -> db.AnnotationQuery:
    """A bar where servers' processes began: a restart, a crash, or a roll-out.

    One bar for each model and place: bars of fifty servers on top of each other would hide the
    graph. family: one that every engine has, since other processes of the job start as well.
    """
    young = f"{server_age()} < {START_SECONDS}"
    engines = f"group by ({TARGET}, model_name) ({family}{{{ENGINE}}})"
    return (
        db.AnnotationQuery()
        .name("Starts")
        .datasource(SOURCE)
        .enable(True)
        .icon_color("purple")
        .expr(f"count by ({_ROLLED_OUT}) (({young}) * on ({TARGET}) group_right () {engines})")
        .title_format("started")
        .text_format("{{model_name}} {{namespace}} {{cluster}}")
        .tag_keys("model_name")
        .step("10s")
        .placement(_SHOWN)
    )
