"""Queries of panels, asked of made-up series through promtool."""

import json
from pathlib import Path
from typing import Any

import yaml

from dashboards.generate import FOLDER
from tests.alerts.tools import promtools, run
from tests.dashboards.promql import VARIABLE, panels_of

MACROS = {"__rate_interval": "1m", "__range": "10m", "__interval": "15s"}

Series = dict[str, str]
"""Selector to values, in promtool's notation."""
Board = dict[str, Any]


def board(name: str) -> Board:
    """overview, kv-pool, ..."""
    loaded: Board = json.loads((FOLDER / f"kvscope-{name}.json").read_text())
    return loaded


def filled(expr: str) -> str:
    """A query that is on several boards, with all variables of the overview at All or default."""
    variables = [v for v in board("overview")["templating"]["list"] if "current" in v]
    values = {v["name"]: v.get("allValue") or v["current"]["value"] for v in variables} | MACROS
    return _substituted(expr, values, _texts(variables))


def _texts(variables: list[Any]) -> dict[str, str]:
    """`${name:text}` of each: what is shown for its value."""
    return {
        v["name"]: str(v["current"]["text"]) for v in variables if "text" in v.get("current", {})
    }


def _substituted(expr: str, values: dict[str, str], texts: dict[str, str]) -> str:
    return VARIABLE.sub(
        lambda match: str((texts if match[0].endswith(":text}") else values)[match[1] or match[2]]),
        expr,
    )


def query(name: str, panel: int, ref: str = "A", **chosen: str) -> str:
    """As Grafana sends it; a variable that is not chosen is at All, or at its default."""
    shown = board(name)
    variables = [v for v in shown["templating"]["list"] if v["type"] in ("query", "custom")]
    values = {  # one without "All" has the first of its values, here the only one
        v["name"]: v.get("allValue") or v.get("current", {}).get("value", ".+") for v in variables
    }
    values |= MACROS | chosen
    (found,) = (p for p in panels_of(shown) if p["id"] == panel)
    (expr,) = (t["expr"] for t in found["targets"] if t["refId"] == ref)
    return _substituted(expr, values, _texts(variables) | chosen)


def check(
    folder: Path,
    series: Series,
    answers: dict[str, dict[str, float]],
    *,
    at: str = "10m",
    every: str = "5s",
) -> None:
    """answers: query to labels to value, at that moment. A sample in each interval.

    Compared to three places, because promtool compares to the last bit.
    """
    case = {
        "interval": every,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f"round({expr}, 0.001)",
                "eval_time": at,
                "exp_samples": [{"labels": k, "value": v} for k, v in expected.items()],
            }
            for expr, expected in answers.items()
        ],
    }
    path = folder / "case.test.yml"
    document = {"rule_files": [], "evaluation_interval": every, "tests": [case]}
    path.write_text(yaml.safe_dump(document))  # samples are loaded up to the last evaluation
    for tool in promtools():
        run(tool, "test", "rules", str(path))
