"""The rules over samples: promtool evaluates them each minute, with everything that they record.

`for` and `keep_firing_for` are thus Prometheus' own. A test that expects nothing to fire at any
moment makes promtool say what does.
"""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from kvscope.backtest import BacktestError
from kvscope.backtest.samples import Samples, names_in

EVERY_SECONDS = 60
"""Between evaluations: rules that sum up recorded samples count on it."""
_FIRING = 'ALERTS{alertstate="firing",severity!="none"}'
_GOT = re.compile(r"time: ([\dhms]+),\s+exp: nil\s+got: (.*)")
_LABEL = r'(\w+)="((?:[^"\\]|\\.)*)"'
_SAMPLE = re.compile(r'\{((?:\w+="(?:[^"\\]|\\.)*"(?:, ?)?)*)\}')
_PART = re.compile(r"(\d+)([hms])")
_SECONDS = {"h": 3600, "m": 60, "s": 1}

Labels = tuple[tuple[str, str], ...]


class Firing(NamedTuple):
    """An alert of some labels; Unix times in seconds."""

    labels: Labels
    since: int
    until: int
    """The first moment at which it no longer fired, or the end."""

    @property
    def name(self) -> str:
        return dict(self.labels)["alertname"]

    @property
    def severity(self) -> str:
        return dict(self.labels).get("severity", "")


class Rules:
    """A rule file."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.groups: list[dict[str, Any]] = yaml.safe_load(text)["groups"]
        every = [rule for group in self.groups for rule in group["rules"]]
        self._recorded = {rule["record"]: rule["expr"] for rule in every if "record" in rule}
        self.alerts = [
            rule for rule in every if "alert" in rule and rule["labels"]["severity"] != "none"
        ]

    @property
    def names(self) -> set[str]:
        """All metrics that they read, without recorded ones, which only some files have."""
        read = (self.read_by(alert["expr"]) for alert in self.alerts)
        return {name for names in read for name in names if ":" not in name}

    def read_by(self, expression: str) -> set[str]:
        found: set[str] = set()
        for name in names_in(expression):
            recorded = self._recorded.get(name)
            found |= {name} if recorded is None else self.read_by(recorded)
        return found


def promtool() -> str:
    """Its path. Raises BacktestError."""
    tool = shutil.which("promtool")
    if tool is None:
        raise BacktestError(
            "promtool is not on PATH: it is in Debian's package prometheus, Homebrew's prometheus, "
            "and every release archive of Prometheus"
        )
    return tool


def evaluate(rules: Rules, samples: Samples, tool: str) -> list[Firing]:
    """The alerts that would have fired, in the order of their beginning. tool: promtool's path.

    Raises BacktestError.
    """
    moments = range(0, samples.ends - samples.begins + 1, EVERY_SECONDS)
    with tempfile.TemporaryDirectory(prefix="kvscope-") as folder:
        (Path(folder) / "rules.yml").write_text(rules.text)
        test = Path(folder) / "past.test.yml"
        test.write_text(json.dumps(_test(rules, samples, moments)))  # JSON is YAML
        done = subprocess.run(
            [tool, "test", "rules", str(test)], capture_output=True, text=True, check=False
        )
    said = done.stdout + done.stderr
    found = dict(_answers(said))
    if done.returncode and not found:
        raise BacktestError(f"promtool test rules: {' '.join(said.split())[-500:]}")
    return sorted(_firings(found, moments, samples.begins), key=lambda firing: firing.since)


def _test(rules: Rules, samples: Samples, moments: range) -> dict[str, Any]:
    groups = [group["name"] for group in rules.groups]
    recording = [name for name in groups if name.endswith(".rules")]
    return {
        "rule_files": ["rules.yml"],
        "evaluation_interval": f"{EVERY_SECONDS}s",
        "group_eval_order": recording + [name for name in groups if name not in recording],
        "tests": [
            {
                "interval": f"{samples.step}s",
                "input_series": list(samples.inputs()),
                "promql_expr_test": [
                    {"expr": _FIRING, "eval_time": f"{moment}s", "exp_samples": []}
                    for moment in moments
                ],
            }
        ],
    }


def _answers(text: str) -> Iterator[tuple[int, set[Labels]]]:
    for time, got in _GOT.findall(text):
        seconds = sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(time))
        alerts = set()
        for sample in _SAMPLE.findall(got):
            labels = dict(re.findall(_LABEL, sample))
            alerts.add(tuple(sorted(pair for pair in labels.items() if pair[0] != "alertstate")))
        yield seconds, alerts


def _firings(found: dict[int, set[Labels]], moments: range, begins: int) -> Iterator[Firing]:
    since: dict[Labels, int] = {}
    for moment in moments:
        now = found.get(moment, set())
        for labels in since.keys() - now:
            yield Firing(labels, begins + since.pop(labels), begins + moment)
        for labels in now - since.keys():
            since[labels] = moment
    for labels, began in since.items():
        yield Firing(labels, begins + began, begins + moments[-1])
