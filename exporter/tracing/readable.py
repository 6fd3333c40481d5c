"""A request's span in OpenTelemetry's form, and the decision whether to send it."""

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
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

from exporter import build_version
from exporter.tracing.span import RequestSpan
from kvscope_events.trace_context import TraceContext


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
