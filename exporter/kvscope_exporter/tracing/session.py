"""Sends the spans of all servers by OTLP in batches, on the thread of OpenTelemetry's processor.

An endpoint that is down or slow costs spans, which are counted, and neither pages nor the end of
the process wait for it.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from kvscope_events.trace_context import TraceContext
from kvscope_exporter import build_version
from kvscope_exporter.catalogue.otlp import SPAN_RESULTS
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.families import Families
from kvscope_exporter.faults import Faults
from kvscope_exporter.otlp.library import Session, resource_of
from kvscope_exporter.otlp.settings import OtlpConfig, OtlpSettingError
from kvscope_exporter.tracing.spans import MAX_OPEN, RequestSpan, Spans

FLUSH_SECONDS = 2.0
"""Time at the end for spans that have not been sent."""
MAX_RESOURCES = 256
"""Cache size; beyond it entries are recreated."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The subject of spans."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Further attributes of the resource."""
    is_only: bool = True
    """The servers of this process."""


class Tracing(Collector):
    """Runs from construction to `stop`. As a collector it counts its spans, for the page."""

    def __init__(
        self,
        config: OtlpConfig,
        clock: Clock,
        origin_of: Callable[[str], Origin] = lambda _: Origin(),
    ) -> None:
        """origin_of: called for each span with the server's instance.

        Raises OtlpSettingError for a URL or a variable that the library cannot use.
        """
        self._config = config
        self._origin_of = origin_of
        self._readable = Readable()
        self._resources: dict[tuple[object, ...], Resource] = {}
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(SPAN_RESULTS, 0)
        self._num_queued = 0
        """Given to the processor, and not yet sent or dropped."""
        self._families = Families({}, clock)
        self._faults: Faults[str] = Faults(
            f"OTLP {config.shown_url}", ("failed", "dropped", "bug"), clock.monotonic_ns
        )
        self._exporter = _Sending(config.url, self._sent)
        variable, default = "OTEL_BSP_MAX_QUEUE_SIZE", "2048"
        queue = os.environ.get(variable, "").strip() or default
        try:
            self._queue_spans = int(queue)
            self._processor = BatchSpanProcessor(self._exporter, max_queue_size=self._queue_spans)
        except ValueError as error:
            raise OtlpSettingError(variable, queue, str(error)) from None

    def listener(self, instance: str) -> Spans:
        """Makes spans from one engine's events. instance: the server's name in a trace store."""
        return Spans(lambda span: self._record(instance, span), self._left_out, MAX_OPEN)

    def stop(self) -> None:
        """Send what is queued, if the endpoint takes it within `FLUSH_SECONDS`, and end."""
        # The processor's own shutdown may take half a minute, and no option shortens it.
        flushing = threading.Thread(
            target=self._processor.shutdown, name="kvscope-traces-flush", daemon=True
        )
        flushing.start()
        flushing.join(FLUSH_SECONDS)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # ends a wait for a retry

    def __enter__(self) -> Self:
        logger.info("traces go to %s", self._config.shown_url)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def collect(self) -> Iterable[Family]:
        with self._lock:
            counts = self._counts.copy()
        yield self._families.column("kvscope_otlp_spans_total", counts)

    def _record(self, instance: str, span: RequestSpan) -> None:
        """Called by the thread that folds, or by one that renders a page."""
        try:
            readable = self._readable.make(span, self._resource(instance))
        except Exception as error:  # a bug of ours must not end the spans of this server
            logger.debug("making a span failed", exc_info=True)
            self._count("dropped", 1)
            self._faults.count("bug", f"making a span failed: {type(error).__name__}: {error}")
            return
        if readable is None:
            return
        with self._lock:
            is_full = self._num_queued >= self._queue_spans
            self._num_queued += not is_full
        if is_full:
            self._count("dropped", 1)
            self._faults.count("dropped", f"{self._queue_spans} spans wait; one was dropped")
        else:
            self._processor.on_end(readable)

    def _resource(self, instance: str) -> Resource:
        origin = self._origin_of(instance)
        key = (instance, origin.is_only, *sorted(origin.labels.items()))
        resource = self._resources.get(key)
        if resource is None:
            if len(self._resources) >= MAX_RESOURCES:
                self._resources = {}
            resource = resource_of(instance, origin.labels, is_only=origin.is_only)
            self._resources[key] = resource
        return resource

    def _left_out(self, number: int) -> None:
        """Requests that get no span."""
        self._count("dropped", number)
        self._faults.count("dropped", "requests under way were not followed to their end", number)

    def _sent(self, number: int, problem: str) -> None:
        with self._lock:
            self._num_queued -= number
        self._count("failed" if problem else "ok", number)
        if problem:
            self._faults.count("failed", problem, number)

    def _count(self, result: str, number: int) -> None:
        with self._lock:
            self._counts[result] += number


class _Sending(OTLPSpanExporter):
    """Reports the result of each batch."""

    def __init__(self, url: str, done: Callable[[int, str], None]) -> None:
        self._session = Session("traces", url)
        super().__init__(endpoint=url, session=self._session)
        self._done = done

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._session.problem = ""
        result = super().export(spans)
        problem = self._session.problem
        if result is not SpanExportResult.SUCCESS:
            problem = problem or "the spans could not be encoded, or it ends"
        self._done(len(spans), problem)
        return result


class Readable:
    """Gives spans their ids and asks the sampler; for any thread."""

    def __init__(self) -> None:
        # The provider's default follows OTEL_TRACES_SAMPLER.
        self._sampler = TracerProvider(shutdown_on_exit=False).sampler
        self._ids = RandomIdGenerator()
        self._scope = InstrumentationScope("kvscope", build_version())

    def make(self, span: RequestSpan, resource: Resource) -> ReadableSpan | None:
        """The span; None: dropped by the sampler, by default because of the caller's flag."""
        parent = _parent_of(span.trace)
        around = Context()
        trace_id = int(span.trace.trace_id or "0", 16) or self._ids.generate_trace_id()
        if parent is not None:
            around = set_span_in_context(NonRecordingSpan(parent), around)
        sampled = self._sampler.should_sample(
            around, trace_id, span.name, SpanKind.SERVER, span.attributes
        )
        if sampled.decision is not Decision.RECORD_AND_SAMPLE:
            return None
        context = SpanContext(
            trace_id,
            self._ids.generate_span_id(),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        return ReadableSpan(
            name=span.name,
            context=context,
            parent=parent,
            resource=resource,
            attributes=span.attributes,
            events=[Event(each.name, each.attributes, each.time_ns) for each in span.moments],
            kind=SpanKind.SERVER,
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


def _parent_of(trace: TraceContext) -> SpanContext | None:
    """The caller's span; None: not given."""
    if not trace.parent_span_id:
        return None
    flags = TraceFlags(TraceFlags.SAMPLED if trace.sampled else TraceFlags.DEFAULT)
    ids = int(trace.trace_id or "0", 16), int(trace.parent_span_id, 16)
    parent = SpanContext(*ids, is_remote=True, trace_flags=flags)
    return parent if parent.is_valid else None
