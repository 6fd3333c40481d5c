"""Alerts over time, by the shipped rules: promtool evaluates series that a test makes up."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.alerts.tools import RULE_FILE, output

STEP_SECONDS = 60
"""From scrape to scrape and from evaluation to evaluation."""
_GOT = re.compile(r"time: ([\dhms]+),\s+exp: nil\s+got: (.*)")
_SAMPLE = re.compile(r"\{([^}]*)\}")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_PART = re.compile(r"(\d+)([hms])")
_SECONDS = {"h": 3600, "m": 60, "s": 1}

Alert = tuple[tuple[str, str], ...]
"""Labels and values, sorted."""


@dataclass
class Situation:
    """Series of one cluster, sample by sample from start to end; None: no sample."""

    name: str
    minutes: int
    series: dict[str, list[float | None]] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return self.minutes * 60 // STEP_SECONDS + 1

    def add(
        self, metric: str, labels: Mapping[str, str], *phases: tuple[float, float | None]
    ) -> None:
        """A gauge. phases: until which minute it has which value; the last one lasts."""
        values: list[float | None] = []
        for step in range(self.steps):
            minute = step * STEP_SECONDS / 60
            current = [value for until, value in phases if minute < until]
            values.append(current[0] if current else phases[-1][1])
        self.series[self._selector(metric, labels)] = values

    def count(
        self, metric: str, labels: Mapping[str, str], *phases: tuple[float, float | None]
    ) -> None:
        """A counter. phases: until which minute it grows by how much a minute."""
        self.add(metric, labels, *phases)
        key = self._selector(metric, labels)
        total, values = 0.0, []
        for growth in self.series[key]:
            total += (growth or 0) * STEP_SECONDS / 60
            values.append(None if growth is None else total)
        self.series[key] = values

    def _selector(self, metric: str, labels: Mapping[str, str]) -> str:
        everywhere = {"job": "kvscope", "cluster": self.name, **labels}
        return metric + "{" + ",".join(f'{k}="{v}"' for k, v in everywhere.items()) + "}"


def firing(
    folder: Path, situations: Iterable[Situation], tool: str
) -> dict[str, list[tuple[int, frozenset[Alert]]]]:
    """For each situation the seconds at which the set of firing alerts changes, and the set.

    All are evaluated at once, as by one Prometheus that scrapes several clusters: most of what
    promtool does is the same for one as for all.
    """
    played = list(situations)
    (minutes,) = {situation.minutes for situation in played}
    path = folder / "situations.test.yml"
    path.write_text(yaml.safe_dump(_question(played)))
    text = output(tool, "test", "rules", path)
    assert " err: " not in text, text
    found = dict(_answers(text))
    timelines: dict[str, list[tuple[int, frozenset[Alert]]]] = {s.name: [] for s in played}
    before: dict[str, frozenset[Alert]] = {}
    for seconds in range(0, minutes * 60 + 1, STEP_SECONDS):
        now: dict[str, set[Alert]] = {name: set() for name in timelines}
        for alert in found.get(seconds, ()):
            now[dict(alert)["cluster"]].add(alert)  # every alert has to say where it is
        for name, alerts in now.items():
            if alerts != before.get(name, frozenset()):
                timelines[name].append((seconds, frozenset(alerts)))
            before[name] = frozenset(alerts)
    return timelines


def _question(situations: list[Situation]) -> dict[str, object]:
    """A test that expects nothing at any time, so that promtool reports what there is."""
    groups = [group["name"] for group in yaml.safe_load(RULE_FILE.read_text())["groups"]]
    recording = [name for name in groups if name.endswith(".rules")]
    return {
        "rule_files": [str(RULE_FILE)],
        "evaluation_interval": f"{STEP_SECONDS}s",
        "group_eval_order": recording + [name for name in groups if name not in recording],
        "tests": [
            {
                "interval": f"{STEP_SECONDS}s",
                "input_series": [
                    {
                        "series": key,
                        "values": " ".join("_" if v is None else f"{v:.10g}" for v in values),
                    }
                    for situation in situations
                    for key, values in situation.series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": 'ALERTS{alertstate="firing",severity!="none"}',
                        "eval_time": f"{step * STEP_SECONDS}s",
                        "exp_samples": [],
                    }
                    for step in range(situations[0].steps)
                ],
            }
        ],
    }


def _answers(text: str) -> Iterable[tuple[int, frozenset[Alert]]]:
    for time, got in _GOT.findall(text):
        seconds = sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(time))
        alerts = set()
        for sample in _SAMPLE.findall(got):
            labels = dict(_LABEL.findall(sample))
            alerts.add(
                tuple(
                    sorted((k, v) for k, v in labels.items() if k not in ("__name__", "alertstate"))
                )
            )
        yield seconds, frozenset(alerts)
