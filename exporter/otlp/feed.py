"""One server's metrics as OpenTelemetry's data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from opentelemetry.sdk.metrics.export import ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family

from exporter import build_version
from exporter.catalogue import metric
from exporter.otlp.attributes import Facts
from exporter.otlp.points import metrics_of
from exporter.otlp.starts import Starts
from kvscope_events.vocabulary import ServerKind

_GPU_INFO = metric("kvscope_gpu_info").family


class Observed(Protocol):
    """A server's exporter."""

    def collect_for_otlp(self) -> Iterator[Family]:
        """All families except those under other servers' names."""
        ...

    def server_kinds(self) -> Mapping[tuple[str, str], ServerKind]:
        """By model_name and engine."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server whose metrics are sent."""

    instance: str
    """The equivalent of Prometheus' `instance`; distinguishes this server from others."""
    exporter: Observed
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further attributes of its resource."""


class Feed:
    """Remembers the start of each series; for one thread."""

    def __init__(self, exporter: Observed, began_ns: int) -> None:
        self.exporter = exporter
        self._starts = Starts(began_ns)
        self._scope = InstrumentationScope("kvscope", build_version())

    def collect(self, resource: Resource, now_ns: int) -> ResourceMetrics:
        """Everything known about the server now; now_ns: Unix time."""
        families = list(self.exporter.collect_for_otlp())
        devices = {
            sample.labels["uuid"]: sample.labels
            for family in families
            if family.name == _GPU_INFO
            for sample in family.samples
        }
        facts = Facts(providers=self.exporter.server_kinds(), devices=devices)
        metrics = list(metrics_of(families, facts, self._starts, now_ns))
        return ResourceMetrics(resource, [ScopeMetrics(self._scope, metrics, "")], "")
