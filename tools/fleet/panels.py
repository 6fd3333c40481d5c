"""Durations of a dashboard's queries, sent as by Grafana."""

import json
import statistics
import time
from dataclasses import dataclass
from typing import Any

from alerts.timing import seconds_of
from dashboards.generate import FOLDER
from tests.dashboards.promql import VARIABLE, panels_of
from tools.fleet.storage import Storage

SCRAPE_SECONDS = 5
"""As shipped; the least step of the data source, too."""
POINTS = 600
"""Across a panel."""
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one panel: the seconds of all its queries one after the other, and of the slowest."""

    board: str
    panel: str
    seconds: float
    slowest: float


def expressions(board: str) -> list[str]:
    """Expressions of its panels, with variables unchanged."""
    return [target["expr"] for panel in _panels(board) for target in panel["targets"]]


def costs(prometheus: Storage, board: str, end: int) -> list[Cost]:
    """Costs of every panel with queries, with everything selected, over the dashboard's own time
    range."""
    document = _document(board)
    covers = seconds_of(document["time"]["from"].removeprefix("now-"))
    step = max(SCRAPE_SECONDS, covers // POINTS)
    chosen = {
        variable["name"]: variable.get("allValue") or variable["current"]["value"]
        for variable in document["templating"]["list"]
        if variable["type"] in ("query", "custom")
    }
    found = []
    for panel in _panels(board):
        own = max(step, seconds_of(panel.get("interval", "0s")))
        values = chosen | {
            "__range": f"{covers}s",
            "__interval": f"{own}s",
            "__rate_interval": f"{max(own + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS)}s",
        }
        each = []
        for target in panel["targets"]:
            query = _filled(target["expr"], values)
            rounds = [_ask(prometheus, query, target, end, covers, own) for _ in range(ROUNDS)]
            each.append(statistics.median(rounds))
        found.append(Cost(board, panel["title"], sum(each), max(each)))
    return found


def _filled(expression: str, values: dict[str, str]) -> str:
    return VARIABLE.sub(lambda match: values[match[1] or match[2]], expression)


def _ask(
    prometheus: Storage, query: str, target: dict[str, Any], end: int, covers: int, step: int
) -> float:
    began = time.perf_counter()
    if target.get("instant"):
        prometheus.ask("query", query=query, time=end)
    else:
        first = (end - covers) // step * step
        prometheus.ask("query_range", query=query, start=first, end=end, step=step)
    return time.perf_counter() - began


def _document(board: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / f"kvscope-{board}.json").read_text())
    return document


def _panels(board: str) -> list[dict[str, Any]]:
    return [panel for panel in panels_of(_document(board)) if panel.get("targets")]
