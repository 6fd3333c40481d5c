"""What a rule is. Addresses of runbooks and dashboards follow from its name and labels."""

from dataclasses import dataclass, field
from typing import Literal

from alerts.timing import Timing
from monitoring.addresses import GRAFANA, RUNBOOKS

Severity = Literal["critical", "warning", "info"]
Topic = Literal[
    "kv-pool",
    "prefix-cache",
    "device-memory",
    "host-memory",
    "engine",
    "gpu",
    "gpu-memory",
    "gpu-clocks",
    "gpu-errors",
    "exporter",
    "target",
    "slo-ttft",
    "slo-errors",
]
"""Alerts of one topic are about one problem: the worst of them silences the others."""
Board = Literal["kvscope-overview", "kvscope-kv-pool", "kvscope-prefix-cache", "kvscope-memory"]

ENGINE = "{{ $labels.model_name }} on {{ $labels.instance }} (engine {{ $labels.engine }})"
GPU = (
    "{{ if $labels.gpu }}GPU {{ $labels.gpu }}{{ else }}{{ $labels.uuid }}{{ end }}"
    " of {{ $labels.instance }}"
)
"""Who it is about, in descriptions. A GPU has no index where NVML does not answer."""
COUNT = '{{ $value | printf "%.0f" }}'
"""A whole number: increase() extrapolates."""

_VARIABLES = {
    "model_name": "model",
    "instance": "instance",
    "engine": "engine",
    "uuid": "gpu",
}
"""Labels to variables of the dashboards."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where links lead."""

    runbooks: str = RUNBOOKS
    grafana: str = GRAFANA


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A recording rule."""

    record: str
    expr: str

    def mapping(self, timing: Timing, places: Places) -> dict[str, object]:
        return {"record": self.record, "expr": self.expr}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert. Its durations are those of the shipped rules: `Timing` shortens them."""

    name: str
    severity: Severity
    topic: Topic
    expr: str
    wait: str
    """`for`."""
    keep: str | None = None
    """`keep_firing_for`: where the expression flaps by nature."""
    summary: str
    """Fixed text: alerts are grouped by it."""
    description: str
    """A template: who, and how much."""
    board: Board
    by: tuple[str, ...] = ("instance", "model_name", "engine")
    """Labels of the result that the dashboard has variables for."""
    labels: dict[str, str] = field(default_factory=dict)
    """Further ones, for rules that share a name."""

    def mapping(self, timing: Timing, places: Places) -> dict[str, object]:
        keep = {} if self.keep is None else {"keep_firing_for": timing.wait(self.keep)}
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": timing.wait(self.wait),
            **keep,
            "labels": {"severity": self.severity, "topic": self.topic, **self.labels},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{places.runbooks}/{self.name}.md",
                "dashboard_url": self._dashboard(places.grafana),
            },
        }

    def _dashboard(self, grafana: str) -> str:
        values = "&".join(
            f"var-{_VARIABLES[label]}={{{{$labels.{label}|urlquery}}}}" for label in self.by
        )
        return f"{grafana}/d/{self.board}" + (f"?{values}" if values else "")


Rule = Alert | Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated together, in order."""

    name: str
    rules: list[Rule]
    interval: str | None = None
    """None: Prometheus's own."""

    def mapping(self, timing: Timing, places: Places) -> dict[str, object]:
        interval = {}
        if self.interval is not None and timing.divisor == 1:
            interval = {"interval": self.interval}
        return {
            "name": self.name,
            **interval,
            "rules": [rule.mapping(timing, places) for rule in self.rules],
        }
