"""Sends the metrics of all servers by OTLP at intervals, on threads of its own.

One thread collects, the other sends, with a short queue between them: an endpoint that is down or
slow only costs exports, which are counted; neither pages nor the end of the process wait for it. A
server whose metrics cannot be collected is left out and counted; all others are sent.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from exporter.catalogue.otlp import EXPORT_RESULTS
from exporter.clock import Clock
from exporter.collect.families import Families
from exporter.faults import Faults
from exporter.otlp.feed import Feed, Observed, Served
from exporter.otlp.parallel import in_threads
from exporter.otlp.resource import resource_of
from exporter.otlp.session import Session, quiet_libraries, rejected_points
from exporter.otlp.settings import OtlpConfig

MAX_QUEUED = 4
"""Exports; sums are cumulative, so dropping one loses resolution but no counts."""
FLUSH_SECONDS = 2.0
"""Time at the end for unsent exports, including the last values."""

logger = logging.getLogger(__name__)


class Outlet(Collector):
    """Runs from `start` to `stop`. As a collector it counts its exports, for the page."""

    def __init__(
        self, config: OtlpConfig, servers: Callable[[], Sequence[Served]], clock: Clock
    ) -> None:
        """servers: returns the present ones; they may come and go.

        Raises OtlpSettingError if the HTTP library cannot use the URL.
        """
        quiet_libraries()
        self._config = config
        self._servers = servers
        self._clock = clock
        self._families = Families({}, clock)
        self._session = Session(rejected_points)
        self._session.check(config.url)
        self._exporter = OTLPMetricExporter(endpoint=config.url, session=self._session)
        self._feeds: dict[str, Feed] = {}
        self._last_ns = clock.wall_ns()
        self._queue: deque[MetricsData] = deque()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._is_complete = False
        """Set once nothing more will be queued."""
        self._counts = dict.fromkeys(EXPORT_RESULTS, 0)
        self._servers_left_out = 0
        self._faults: Faults[str] = Faults(
            f"OTLP {config.shown_url}", ("failed", "dropped", "left_out", "bug"), clock.monotonic_ns
        )
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for run, name in (
                (self._collect_in_intervals, "kvscope-otlp"),
                (self._send, "kvscope-otlp-send"),
            )
        ]

    def start(self) -> None:
        """Begin; called once. The first export comes after one interval."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send the last values, if the endpoint takes them within `FLUSH_SECONDS`, and end."""
        self._stopping.set()
        collecting, sending = self._threads
        deadline = self._clock.monotonic_ns() + round(FLUSH_SECONDS * 1e9)
        collecting.join(FLUSH_SECONDS)
        sending.join(max(0.0, (deadline - self._clock.monotonic_ns()) / 1e9))
        self._exporter.shutdown()  # also ends a wait between two attempts

    def __enter__(self) -> Self:
        config = self._config
        logger.info("metrics go to %s every %g s", config.shown_url, config.interval_seconds)
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def collect(self) -> Iterable[Family]:
        with self._changed:
            counts, left_out = self._counts.copy(), self._servers_left_out
        yield self._families.column("kvscope_otlp_exports_total", counts)
        yield self._families.single("kvscope_otlp_servers_left_out_total", left_out)

    def _collect_in_intervals(self) -> None:
        interval_ns = round(self._config.interval_seconds * 1e9)
        due_ns = self._clock.monotonic_ns() + interval_ns
        while not self._stopping.wait(max(0, due_ns - self._clock.monotonic_ns()) / 1e9):
            self._collect()
            late_ns = max(0, self._clock.monotonic_ns() - due_ns)
            due_ns += interval_ns * (1 + late_ns // interval_ns)
        self._collect()
        with self._changed:
            self._is_complete = True
            self._changed.notify_all()

    def _collect(self) -> None:
        try:
            data = self._data()
        except Exception as error:  # a bug of ours must not end the export for good
            logger.debug("collecting failed", exc_info=True)
            self._count_failure("bug", f"collecting failed: {type(error).__name__}: {error}")
            return
        if data is None:
            self._count_failure("bug", "no server's metrics could be collected")
            return
        with self._changed:
            is_full = len(self._queue) == MAX_QUEUED
            if is_full:
                self._queue.popleft()
            self._queue.append(data)
            self._changed.notify_all()
        if is_full:
            self._count_failure("dropped", f"it is {MAX_QUEUED} exports behind; one was dropped")

    def _data(self) -> MetricsData | None:
        """Metrics of all servers that can be collected; None: there are servers, but all of them
        failed.
        """
        now_ns = self._clock.wall_ns()
        served = self._servers()
        self._feeds = {
            server.instance: self._feed(self._feeds.get(server.instance), server.exporter)
            for server in served
        }

        def collect(server: Served) -> ResourceMetrics | None:
            try:
                is_only = len(served) == 1
                resource = resource_of(server.instance, server.labels, is_only=is_only)
                return self._feeds[server.instance].collect(resource, now_ns)
            except Exception as error:  # a bug of ours must not cost the other servers' metrics
                logger.debug("collecting failed", exc_info=True)
                self._count_left_out(server, error)
                return None

        resources = [found for found in in_threads(collect, served) if found is not None]
        self._last_ns = now_ns
        return MetricsData(resources) if resources or not served else None

    def _feed(self, known: Feed | None, exporter: Observed) -> Feed:
        """A new feed for a different exporter, even of the same name: its counters restarted."""
        if known is not None and known.exporter is exporter:
            return known
        return Feed(exporter, self._last_ns)

    def _send(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._is_complete:
                    self._changed.wait()
                if not self._queue:
                    return
                data = self._queue.popleft()
            try:
                result = self._exporter.export(data)
                problem = self._session.problem
            except Exception as error:
                result, problem = MetricExportResult.FAILURE, f"{type(error).__name__}: {error}"
            if result is MetricExportResult.SUCCESS and not problem:
                with self._changed:
                    self._counts["ok"] += 1
            else:
                self._count_failure("failed", problem or "the metrics could not be encoded")

    def _count_left_out(self, server: Served, error: Exception) -> None:
        with self._changed:
            self._servers_left_out += 1
        problem = f"collecting failed: {type(error).__name__}: {error}"
        self._faults.count("left_out", f"{server.instance} is left out: {problem}")

    def _count_failure(self, kind: str, problem: str) -> None:
        with self._changed:
            self._counts["failed"] += 1
        self._faults.count(kind, problem)
