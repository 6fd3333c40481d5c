"""Alerts and recording rules. An alert's name and labels give its runbook and dashboard links."""

from dataclasses import dataclass, field
from typing import Literal

from kvscope_alerts.timing import Timing
from kvscope_monitoring.addresses import GRAFANA, RUNBOOKS

Severity = Literal["critical", "warning", "info", "none"]
"""`none` is for an alert that always fires."""
Topic = Literal[
    "kv-pool",
    "prefix-cache",
    "device-memory",
    "host-memory",
    "engine",
    "engine-sleep",
    "queue",
    "errors",
    "outlier",
    "traffic",
    "gpu",
    "gpu-slow",
    "exporter",
    "target",
    "fleet",
    "slo-ttft",
    "slo-itl",
    "slo-errors",
    "watchdog",
]
"""Alerts of the same topic are about the same problem: the most severe one silences the others."""
Board = Literal[
    "kvscope-overview",
    "kvscope-kv-pool",
    "kvscope-prefix-cache",
    "kvscope-memory",
    "kvscope-service-levels",
    "kvscope-vllm",
]

ENGINE = (
    "{{ $labels.model_name }} on {{ with $labels.pod }}{{ . }}, {{ end }}{{ $labels.instance }}"
    " (engine {{ $labels.engine }})"
)
SERVER = (
    "{{ with $labels.model_name }}{{ . }} on {{ end }}{{ with $labels.pod }}{{ . }}, {{ end }}"
    "{{ $labels.instance }}{{ with $labels.node }} ({{ . }}){{ end }}"
)
MODEL = (
    "{{ $labels.model_name }}{{ with $labels.namespace }} in {{ . }}{{ end }}"
    "{{ with $labels.cluster }} ({{ . }}){{ end }}"
)
GPU = (
    "{{ if $labels.gpu }}GPU {{ $labels.gpu }}{{ else }}{{ $labels.uuid }}{{ end }}"
    " of {{ with $labels.node }}{{ . }}, {{ end }}{{ $labels.instance }}"
)
"""The subject of an alert, in descriptions. A GPU has no index if NVML does not answer; pod, node,
namespace and cluster are named if the targets have them."""
_OF_MODEL = '{job="kvscope",model_name=%q,cluster=%q,namespace=%q}'
_INCIDENTS = f"max by (instance) (kvscope_incident_age_seconds{_OF_MODEL})"
_REQUESTS = f"sum by (instance) (kvscope_requests{_OF_MODEL})"
_PLACE_OF_MODEL = "$labels.model_name $labels.cluster $labels.namespace"
SERVERS = (
    f"{{{{ with query (printf `topk(3, (1e9 + {_INCIDENTS}) or {_REQUESTS})`"
    f" {_PLACE_OF_MODEL} {_PLACE_OF_MODEL}) }}}}"
    "{{ range . }}{{ .Labels.instance }} {{ end }}{{ else }}-{{ end }}"
)
"""Up to three servers of an alert's model, for `kvscope why`: those with the oldest trouble, then
those with the most requests."""
COUNT = '{{ $value | printf "%.0f" }}'
"""A whole number: increase() extrapolates."""

_PLACE = ("cluster", "namespace")
_VARIABLES = {
    "cluster": "cluster",
    "namespace": "namespace",
    "model_name": "model",
    "instance": "instance",
    "engine": "engine",
    "uuid": "gpu",
}
"""Labels, and the variables of the dashboards that they set."""


@dataclass(frozen=True, slots=True)
class Places:
    """Base addresses of links."""

    runbooks: str = RUNBOOKS
    grafana: str = GRAFANA


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A recording rule."""

    record: str
    expr: str
    labels: dict[str, str] = field(default_factory=dict)

    def mapping(self, timing: Timing, places: Places) -> dict[str, object]:
        labels = {"labels": self.labels} if self.labels else {}
        return {"record": self.record, "expr": self.expr, **labels}


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
    """`keep_firing_for`: for expressions that flap by nature."""
    summary: str
    """A fixed text, by which alerts can be grouped."""
    description: str
    """A template that names the subject and the figures."""
    board: Board
    by: tuple[str, ...] = ("instance", "model_name", "engine")
    """Labels of the result that the dashboard has variables for, besides those of the place. The
    link omits labels that an alert does not have: an empty variable would select nothing."""
    labels: dict[str, str] = field(default_factory=dict)
    """Further labels, for rules that share a name."""
    servers: str | None = None
    """A template of the servers to ask for the cause, by their `instance`; None: it names one."""

    def mapping(self, timing: Timing, places: Places) -> dict[str, object]:
        keep = {} if self.keep is None else {"keep_firing_for": timing.wait(self.keep)}
        servers = {} if self.servers is None else {"servers": self.servers}
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
                **servers,
            },
        }

    def _dashboard(self, grafana: str) -> str:
        """A link to six hours: the cause of the trouble is rarely in the last thirty minutes."""
        variables = "".join(
            f"{{{{with $labels.{label}}}}}&var-{_VARIABLES[label]}={{{{.|urlquery}}}}{{{{end}}}}"
            for label in (*_PLACE, *self.by)
        )
        return f"{grafana}/d/{self.board}?from=now-6h&to=now{variables}"


Rule = Alert | Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated together, in order."""

    name: str
    rules: list[Rule]
    interval: str | None = None
    """None: Prometheus' default."""

    def mapping(self, timing: Timing, places: Places) -> dict[str, object]:
        interval = {}
        if self.interval is not None and timing.divisor == 1:
            interval = {"interval": self.interval}
        return {
            "name": self.name,
            **interval,
            "rules": [rule.mapping(timing, places) for rule in self.rules],
        }
