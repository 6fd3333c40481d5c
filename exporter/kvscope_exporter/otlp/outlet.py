"""Sends the metrics of all servers by OTLP, on the thread of OpenTelemetry's periodic reader.

An endpoint that is down or slow costs exports, which are counted; neither pages nor the end of the
process wait for it. A server whose metrics cannot be collected is left out and counted.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from kvscope_exporter import build_version
from kvscope_exporter.catalogue.otlp import EXPORT_RESULTS
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.families import Families
from kvscope_exporter.faults import Faults
from kvscope_exporter.otlp.feed import Feed, Observed
from kvscope_exporter.otlp.library import Session, resource_of
from kvscope_exporter.otlp.settings import OtlpConfig, OtlpSettingError

FLUSH_SECONDS = 2.0
"""Time at the end for the last values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server whose metrics are sent."""

    instance: str
    """The equivalent of Prometheus' `instance`; distinguishes this server from others."""
    exporter: Observed
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further attributes of its resource."""


class Outlet(OTLPMetricExporter, Collector):
    """Exports inside the block. As a collector it counts its exports, for the page."""

    def __init__(
        self, config: OtlpConfig, servers: Callable[[], Sequence[Served]], clock: Clock
    ) -> None:
        """servers: returns the present ones; they may come and go. Raises OtlpSettingError."""
        self._session = Session("metrics", config.url)
        super().__init__(endpoint=config.url, session=self._session)
        self._shown_url = config.shown_url
        self._servers = servers
        self._clock = clock
        self._families = Families({}, clock)
        self._feeds: dict[str, Feed] = {}
        self._last_ns = clock.wall_ns()
        self._scope = InstrumentationScope("kvscope", build_version())
        kinds = (*EXPORT_RESULTS, "left_out")
        self._faults: Faults[str] = Faults(f"OTLP {self._shown_url}", kinds, clock.monotonic_ns)
        try:
            self._reader = PeriodicExportingMetricReader(self)
        except ValueError as error:
            raise OtlpSettingError("OTEL_METRIC_EXPORT_INTERVAL", "", str(error)) from None

    def __enter__(self) -> Self:
        # The reader exports nothing without an instrument, and no instrument takes histograms that
        # were counted elsewhere. The value of this one is not sent.
        provider = MeterProvider([self._reader], shutdown_on_exit=False)
        provider.get_meter("kvscope").create_observable_gauge("due", [lambda _: [Observation(1)]])
        logging.getLogger(__name__).info("metrics go to %s", self._shown_url)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Send the last values, if the endpoint takes them within `FLUSH_SECONDS`, and end."""
        self._reader.shutdown(FLUSH_SECONDS * 1e3)

    def collect(self) -> Iterable[Family]:
        counts = self._faults.counts.copy()
        left_out = counts.pop("left_out")
        yield self._families.column("kvscope_otlp_exports_total", counts)
        yield self._families.single("kvscope_otlp_servers_left_out_total", left_out)

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = None, **_: Any
    ) -> MetricExportResult:
        """Send what the servers have now; called by the reader, whose own data say nothing."""
        self._session.problem = ""
        try:
            result = super().export(self._data())
            problem = self._session.problem
        except Exception as error:  # the reader's thread must go on
            result, problem = MetricExportResult.FAILURE, f"{type(error).__name__}: {error}"
        if result is MetricExportResult.SUCCESS and not problem:
            self._faults.counts["ok"] += 1
        else:
            self._faults.count("failed", problem or "the metrics could not be encoded")
        return result

    def _data(self) -> MetricsData:
        """Metrics of all servers that can be collected."""
        now_ns = self._clock.wall_ns()
        served = self._servers()
        feeds, self._feeds = self._feeds, {}
        found = []
        for server in served:
            feed = feeds.get(server.instance)
            if feed is None or feed.exporter is not server.exporter:  # its counts begin at 0
                feed = Feed(server.exporter, self._last_ns)
            self._feeds[server.instance] = feed
            try:
                resource = resource_of(server.instance, server.labels, is_only=len(served) == 1)
                scope = ScopeMetrics(self._scope, list(feed.collect(now_ns)), "")
                found.append(ResourceMetrics(resource, [scope], ""))
            except Exception as error:  # a bug of ours must not cost the other servers' metrics
                why = f"collecting failed: {type(error).__name__}: {error}"
                self._faults.count("left_out", f"{server.instance} is left out: {why}")
        self._last_ns = now_ns
        if served and not found:
            raise RuntimeError("no server's metrics could be collected")
        return MetricsData(found)
