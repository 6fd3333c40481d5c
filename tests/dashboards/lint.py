"""Lints our dashboards: the conventions, the traps of the SDK, and PromQL against real pages."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.models import units

from tests.dashboards.promql import NUMBERS, VARIABLE, Exposed, Finding, check_query, panels_of

UNITS = {v for k, v in vars(units).items() if isinstance(v, str) and not k.startswith("_")}
NEEDS_UNIT = {"stat", "timeseries", "heatmap", "xychart"}
HAS_LEGEND = {"timeseries", "state-timeline", "xychart"}
OF_NOW = {"table", "xychart"}
"""Their rows are of one moment."""
SOURCE = "${datasource}"
SHORTEST_DESCRIPTION = 40
QUERY_OF_LABELS = re.compile(r"label_values\((.+), (\w+)\)")

Json = dict[str, Any]


def lint(board: Json, exposed: Exposed) -> Iterator[Finding]:
    """Every finding in a dashboard's JSON."""
    variables = board["templating"]["list"]
    names = {v["name"] for v in variables}
    yield from _lint_board(board)
    yield from _lint_variables(variables, exposed)
    panels = panels_of(board)
    yield from _lint_layout(panels, {p["id"] for p in board["panels"]})
    for panel in panels:
        if panel["type"] != "row":
            yield from _lint_panel(panel, names, exposed)
    text = " ".join(str(panel.get("targets", "")) for panel in panels)
    used = {match[1] or match[2] for match in VARIABLE.finditer(f"{text} {variables}")}
    for name in names - used - SHARED:
        yield "D-template-unused", name, "no query uses it"


PLACES = {"cluster", "namespace", "pod"}
OPTIONAL = {"engine", *PLACES}
ALL = {False: (".+",), True: (".+", ".*")}
"""Every value; of labels that not every server has, also none at all."""

SHARED = {"datasource", "gpu", "engine", "model", "pod", "filters", *NUMBERS}
"""On every dashboard, used or not, so that links carry the choice on."""


def _lint_board(board: Json) -> Iterator[Finding]:
    if not re.fullmatch(r"kvscope-[a-z-]{2,30}", board.get("uid", "")):
        yield "D-uid", "dashboard", "uid missing, or not ours"
    if "kvscope" not in board.get("tags", []):
        yield "D-tags", "dashboard", "without the tag that links look for"
    if not board["title"].startswith("kvscope / "):
        yield "D-title", "dashboard", "the title must be 'kvscope / Thing'"
    if board.get("editable", True):
        yield "D-uneditable", "dashboard", "editable must be false"
    if board.get("id") is not None:
        yield "D-id", "dashboard", "a numeric id must be null"
    if board.get("graphTooltip") != 1:
        yield "D-crosshair", "dashboard", "no shared crosshair"
    if not board.get("refresh") or board.get("timezone") != "browser":
        yield "D-refresh", "dashboard", "refresh or time zone missing"
    for item in board["links"] + board["annotations"]["list"]:
        if item.get("placement") == "inControlsMenu" and not item.get("builtIn"):
            yield "S-placement", item.get("title") or item["name"], "hidden in a menu"
    if not any(link.get("type") == "dashboards" for link in board["links"]):
        yield "D-links", "dashboard", "no links to the others by tag"
    if not any("ALERTS" in a.get("expr", "") for a in board["annotations"]["list"]):
        yield "D-annotations", "dashboard", "no alerts as annotations"


def _lint_variables(variables: list[Json], exposed: Exposed) -> Iterator[Finding]:
    names = {v["name"] for v in variables}
    sources = [(v["name"], v["label"]) for v in variables if v["type"] == "datasource"]
    if sources != [("datasource", "Data source")]:
        yield "D-template-datasource", "dashboard", "exactly one, named 'datasource'"
    for variable in (v for v in variables if v["type"] == "query"):
        name = variable["name"]
        if variable.get("refresh") != 2:
            yield "D-template-refresh", name, "refresh must be 2 (on time range change)"
        if variable["datasource"]["uid"] != SOURCE:
            yield "D-template-ds", name, f"must use {SOURCE}"
        if variable["multi"] and variable.get("allValue") not in ALL[name in OPTIONAL]:
            yield "D-template-all", name, "several values want allValue .+"
        match = QUERY_OF_LABELS.fullmatch(variable["query"])
        if match is None:
            yield "D-template-query", name, "not label_values(metric, label)"
            continue
        where = f"variable {name}"
        yield from check_query(where, match[1], names, exposed, instant=True)
        family = match[1].split("{")[0]
        if match[2] not in exposed.labels.get(family, set()) | {"instance"} | PLACES:
            yield "D-unknown-label", where, f"{family} has no label {match[2]}"


def _lint_layout(panels: list[Json], shown: set[int]) -> Iterator[Finding]:
    """No overlap, nothing over the edge, no holes; ids there, once, below their row's.

    shown: ids of what no folded row hides; what is below one takes its room only when it is opened.
    """
    taken: dict[tuple[int, int], str] = {}
    row = 0
    for panel in panels:
        where, box = describe(panel), panel["gridPos"]
        number = panel.get("id") or 0
        if panel["type"] == "row":
            row = number
        if not row <= number < row + 100:
            yield "S-panel-id", where, f"not of row {row}"
        if box["x"] + box["w"] > 24:
            yield "S-grid", where, "over the edge"
        if number not in shown:
            continue
        cells = [
            (x, y)
            for x in range(box["x"], box["x"] + box["w"])
            for y in range(box["y"], box["y"] + box["h"])
        ]
        for other in {taken[cell] for cell in cells if cell in taken}:
            yield "S-grid", where, f"overlaps {other}"
        taken |= dict.fromkeys(cells, where)
    ids = Counter(panel.get("id") for panel in panels)
    for number, count in ids.items():
        if number is None or count > 1:
            yield "S-panel-id", "dashboard", f"id {number} {count} times"
    width = Counter(y for _, y in taken)
    for line in range(max(width) + 1):
        cells_of_line = width[line]
        if cells_of_line != 24:
            yield "S-grid", f"line {line}", f"{24 - cells_of_line} of 24 columns are empty"


def describe(panel: Json) -> str:
    return f"panel {panel.get('id')} {panel.get('title', '')!r}"


def _lint_panel(panel: Json, variables: set[str], exposed: Exposed) -> Iterator[Finding]:
    where, kind = describe(panel), panel["type"]
    if not panel.get("title"):
        yield "D-title", where, "no title"
    if kind == "text":
        return
    if len(panel.get("description", "")) < SHORTEST_DESCRIPTION:
        yield "D-description", where, "no description that says what to do"
    if panel["datasource"]["uid"] != SOURCE:
        yield "D-panel-datasource", where, f"not {SOURCE}"
    yield from _lint_looks(panel)
    targets = panel["targets"]
    if not targets:
        yield "D-no-targets", where, "no queries"
    if len({t["refId"] for t in targets}) != len(targets):
        yield "D-refid", where, "the same refId twice"
    for target in targets:
        at = f"{where} {target['refId']}"
        instant = bool(target.get("instant"))
        if target["datasource"]["uid"] != SOURCE:
            yield "D-target-datasource", at, f"not {SOURCE}"
        if not target.get("legendFormat") and kind != "stat":
            yield "D-legend", at, "no name for what it returns"
        if kind in OF_NOW and not instant:
            yield "D-table-instant", at, f"the query of a {kind} must be instant"
        yield from check_query(at, target["expr"], variables, exposed, instant=instant)


def _lint_looks(panel: Json) -> Iterator[Finding]:
    where, kind = describe(panel), panel["type"]
    defaults, options = panel["fieldConfig"]["defaults"], panel["options"]
    unit = defaults.get("unit")
    if kind in NEEDS_UNIT and (not unit or (unit not in UNITS and ":" not in unit)):
        yield "D-unit", where, f"no unit, or an unknown one: {unit}"
    if kind in HAS_LEGEND and not options.get("legend", {}).get("showLegend"):
        yield "S-legend", where, "legend hidden (the SDK's default)"
    if kind == "stat":
        if options["reduceOptions"].get("calcs") != ["lastNotNull"]:
            yield "S-calcs", where, "not lastNotNull: the last value may be null"
        if not defaults.get("noValue"):
            yield "D-no-value", where, "says nothing when there is no value"
        legends = [t.get("legendFormat") for t in panel["targets"]]
        if len(set(legends)) > 1 and not all(legends):
            yield "D-legend", where, "several numbers, not all with a name"
