"""One server's metrics as OpenTelemetry's data, with the resource that they belong to."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from opentelemetry.sdk.metrics.export import ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.sdk.version import __version__ as SDK_VERSION
from prometheus_client.core import Metric as Family

from exporter.catalogue import metric
from exporter.collect.observation import build_version
from exporter.otlp.attributes import Facts
from exporter.otlp.points import metrics_of
from exporter.otlp.starts import Starts
from kvscope_events.vocabulary import ServerKind

SERVICE_NAME = "kvscope"
_INSTANCE = "service.instance.id"
_GPU_INFO = metric("kvscope_gpu_info").family


class Observed(Protocol):
    """A server's exporter."""

    def collect_for_otlp(self) -> Iterator[Family]:
        """All families but those under other servers' names."""
        ...

    def server_kinds(self) -> Mapping[tuple[str, str], ServerKind]:
        """By model_name and engine."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server whose metrics are sent."""

    instance: str
    """What `instance` is in Prometheus; tells this server from others."""
    exporter: Observed
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further attributes of its resource."""


@functools.cache
def _of_environment() -> Mapping[str, Any]:
    """Once: the library says of every malformed attribute that it is."""
    return dict(OTELResourceDetector().detect().attributes)


def resource_of(served: Served, *, is_only: bool) -> Resource:
    """Whom the metrics are about; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.

    is_only: otherwise an instance id from the environment, which is that of this process, gets the
    server's own behind it, since no two resources may have the same.
    """
    given = dict(_of_environment())
    if _INSTANCE in given and not is_only:
        given[_INSTANCE] = f"{given[_INSTANCE]}/{served.instance}"
    return Resource(
        {
            "telemetry.sdk.language": "python",
            "telemetry.sdk.name": "opentelemetry",
            "telemetry.sdk.version": SDK_VERSION,
            "service.name": SERVICE_NAME,
            "service.version": build_version(),
            _INSTANCE: served.instance,
            **served.labels,
            **given,
        }
    )


class Feed:
    """Remembers since when each series counts; for one thread."""

    def __init__(self, exporter: Observed, began_ns: int) -> None:
        self.exporter = exporter
        self._starts = Starts(began_ns)
        self._scope = InstrumentationScope("kvscope", build_version())

    def collect(self, resource: Resource, now_ns: int) -> ResourceMetrics:
        """Everything known of the server now; now_ns: Unix time."""
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
