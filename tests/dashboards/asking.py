"""Queries of our boards as Grafana sends them, and what a real Prometheus answers."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx

from dashboards.generate import FOLDER
from dashboards.kit.panels import MEDIAN
from tests.dashboards.exceptions import Query
from tests.dashboards.lint import PLACES
from tests.dashboards.promql import NUMBERS, VARIABLE, panels_of
from tests.support.prometheus import Prometheus

MACROS = {"__rate_interval": "5s", "__range": "30s", "__interval": "1s"}
"""As Grafana fills them in for a data source with an interval of 1 s, five minutes on screen."""
VALUES = {**MACROS, **NUMBERS, **dict.fromkeys(PLACES, ".*")}
"""Neither server has a label for its place, as on a machine without Kubernetes."""
WINDOW_SECONDS = 25


def fill(text: str, **other: str) -> str:
    """With macros and variables as Grafana replaces them, every variable at 'All'.

    other: macros of a data source with another interval.
    """
    values = {**VALUES, **other}
    return VARIABLE.sub(lambda match: values.get(match[1] or match[2], ".+"), text)


def targets(uid: str) -> Iterator[tuple[Query, dict[str, Any]]]:
    """Every query of a board, with its place."""
    for panel in panels_of(json.loads((FOLDER / f"{uid}.json").read_text())):
        for target in panel.get("targets", []):
            if target["legendFormat"] != MEDIAN:  # of more than ten engines; test_fleet has them
                yield (uid, panel["id"], target["refId"]), target


def ask(
    server: Prometheus, target: dict[str, Any], now: float | None = None, **other: str
) -> list[dict[str, Any]]:
    """The panel's data: series with labels and values."""
    now = now or time.time()
    if target.get("instant"):
        path, times = "query", {"time": now}
    else:
        path, times = "query_range", {"start": now - WINDOW_SECONDS, "end": now, "step": 1}
    parameters: dict[str, Any] = {"query": fill(target["expr"], **other), **times}
    response = httpx.get(f"{server.url}/api/v1/{path}", params=parameters, timeout=20)
    body = response.json()
    assert body["status"] == "success", f"{target['expr']}: {body['error']}"
    result: list[dict[str, Any]] = body["data"]["result"]
    return result


def problem(server: Prometheus, target: dict[str, Any], **other: str) -> str | None:
    """The reason why the panel would be empty or nameless."""
    found = ask(server, target, None, **other)
    if not found:
        return "no series"
    values = [v for s in found for _, v in s.get("values") or [s["value"]]]
    if all(value == "NaN" for value in values):
        return "only NaN"
    wanted = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) - {"le"}
    for series in found:
        if missing := wanted - series["metric"].keys():
            return f"no label {sorted(missing)} for the legend"
    return None
