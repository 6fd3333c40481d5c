"""Makes a span of every request that ends, from the events of one engine.

Durations since arrival are the engine's own. Each also implies that the request arrived no later
than the end of that batch minus the duration; the earliest of these is taken as the arrival, so a
span is late by at most part of a step. Preemptions and resumptions have no duration since arrival,
and stand at the end of their step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from kvscope_events.events import (
    FirstToken,
    Hello,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceFinished,
)
from kvscope_events.trace_context import NO_TRACE, TraceContext
from kvscope_exporter.state.fold import Fold
from kvscope_exporter.state.gen_ai import UNKNOWN_OPERATION

Value = str | int | float | list[str]
Attributes = Mapping[str, Value]

MAX_INTEGER = (1 << 63) - 1
"""Largest value of an attribute, and of a time in nanoseconds."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event of a span."""

    name: str
    time_ns: int
    """Unix time."""
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpan:
    """One request from its arrival to its end; the moments lie between, in order."""

    name: str
    start_ns: int
    end_ns: int
    """Unix times."""
    trace: TraceContext = NO_TRACE
    """A trace without a parent begins with this span."""
    attributes: Attributes = field(default_factory=dict)
    moments: tuple[SpanEvent, ...] = ()
    failed: bool = False
    """Whether the server could not answer; a client that went away does not count."""


MAX_OPEN = 1 << 14
"""Maximum number of unended requests; further ones get no span. About 20 MB."""
MAX_MOMENTS = 128
"""Moments of a span, and reasons of its sequences: OpenTelemetry's default limit of span events."""


class _OpenRequest:
    """A request that has not ended. Times are those of the stream's clock."""

    __slots__ = (
        "arrived_ns",
        "cached_tokens",
        "event",
        "left_out",
        "moments",
        "prompt_tokens",
        "reasons",
    )

    def __init__(self, event: RequestArrived, now_ns: int) -> None:
        self.event = event
        self.arrived_ns = now_ns  # not after this
        # Name, attributes, and when: since arrival, or on the stream's clock.
        self.moments: list[tuple[str, Attributes, int, bool]] = []
        self.left_out = 0
        self.reasons: dict[int, str] = {}  # by sequence
        self.prompt_tokens = 0  # of all sequences that ended
        self.cached_tokens: int | None = 0  # None: not known of one of them

    def mark(
        self, name: str, time_ns: int, attributes: Attributes, *, is_duration: bool = False
    ) -> None:
        if len(self.moments) < MAX_MOMENTS:
            self.moments.append((name, attributes, time_ns, is_duration))
        else:
            self.left_out += 1

    def elapsed(self, now_ns: int, duration_ns: int) -> None:
        """This much time had passed since arrival when the batch of this moment was closed."""
        self.arrived_ns = min(self.arrived_ns, now_ns - duration_ns)


class Spans(Fold):
    """Hands each span to `sink` as its request ends; `dropped` is called for those without one.

    Without a wall clock in the stream there are no spans. Spans never contain prompts, answers or
    tenants.
    """

    name = "spans"

    def __init__(
        self, sink: Callable[[RequestSpan], None], dropped: Callable[[int], None], max_open: int
    ) -> None:
        super().__init__()
        self._sink = sink
        self._dropped = dropped
        self._max_open = max_open
        self._open: dict[int, _OpenRequest] = {}
        self._about: dict[str, Value] = {}
        self._model = ""

    @property
    def num_pending(self) -> int:
        return len(self._open)

    def on_gap(self) -> None:
        """Forgets the requests in progress: their missing events are unknown."""
        self._dropped(len(self._open))
        self._open.clear()

    def on_hello(self, event: Hello) -> None:
        self._model = event.model_name
        self._about = {
            "gen_ai.provider.name": event.server,
            "gen_ai.request.model": event.model_name,
            "kvscope.engine": event.engine,
        }

    def on_request_arrived(self, event: RequestArrived) -> None:
        if len(self._open) >= self._max_open or event.request in self._open:
            self._dropped(1)
        if len(self._open) < self._max_open or event.request in self._open:
            self._open[event.request] = _OpenRequest(event, self.batch.time_ns)

    def on_request_scheduled(self, event: RequestScheduled) -> None:
        request = self._open.get(event.request)
        if request is None:
            return
        request.elapsed(self.batch.time_ns, event.queue_ns)
        waited: Attributes = {"kvscope.queue_seconds": event.queue_ns / 1e9}
        request.mark("kvscope.scheduled", event.queue_ns, waited, is_duration=True)
        if event.cached_tokens:
            found = {"kvscope.cached_tokens": _integer(event.cached_tokens)}
            request.mark("kvscope.prefix_hit", event.queue_ns, found, is_duration=True)

    def on_first_token(self, event: FirstToken) -> None:
        request = self._open.get(event.request)
        if request is not None:
            request.elapsed(self.batch.time_ns, event.elapsed_ns)
            request.mark("kvscope.first_token", event.elapsed_ns, {}, is_duration=True)

    def on_request_preempted(self, event: RequestPreempted) -> None:
        request = self._open.get(event.request)
        if request is None:
            return
        request.mark(
            "kvscope.preempted",
            self.batch.time_ns,
            {
                "kvscope.preemption.mode": event.mode,
                "kvscope.preemption.cause": event.cause,
                "kvscope.discarded_tokens": _integer(event.discarded_tokens),
            },
        )

    def on_request_resumed(self, event: RequestResumed) -> None:
        request = self._open.get(event.request)
        if request is None:
            return
        request.mark(
            "kvscope.resumed",
            self.batch.time_ns,
            {
                "kvscope.stalled_seconds": event.stalled_ns / 1e9,
                "kvscope.recompute_tokens": _integer(event.recompute_tokens),
                "kvscope.cached_tokens": _integer(event.cached_tokens),
                "kvscope.swapped_tokens": _integer(event.swapped_tokens),
            },
        )

    def on_sequence_finished(self, event: SequenceFinished) -> None:
        request = self._open.get(event.request)
        if request is None:
            return
        if len(request.reasons) < MAX_MOMENTS:
            request.reasons[event.sequence] = event.reason
        request.prompt_tokens += event.prompt_tokens
        if event.computed_tokens is None:
            request.cached_tokens = None
        elif request.cached_tokens is not None:
            request.cached_tokens += max(0, event.prompt_tokens - event.computed_tokens)

    def on_request_finished(self, event: RequestFinished) -> None:
        request = self._open.pop(event.request, None)
        if request is None:
            return
        batch = self.batch
        request.elapsed(batch.time_ns, event.elapsed_ns)
        start_ns = batch.wall_ns - batch.time_ns + request.arrived_ns
        end_ns = start_ns + event.elapsed_ns
        if not batch.wall_ns or not 0 < start_ns <= end_ns <= MAX_INTEGER:
            self._dropped(1)
            return
        arrived = request.event
        operation = arrived.operation or UNKNOWN_OPERATION
        self._sink(
            RequestSpan(
                name=f"{operation} {self._model}".rstrip(),
                start_ns=start_ns,
                end_ns=end_ns,
                trace=TraceContext(arrived.trace_id, arrived.parent_span_id, arrived.sampled),
                attributes={
                    "gen_ai.operation.name": operation,
                    **self._about,
                    **_attributes(request, event),
                },
                moments=_moments(request, start_ns, end_ns),
                failed=event.reason == "error",
            )
        )


def _attributes(request: _OpenRequest, event: RequestFinished) -> dict[str, Value]:
    """Attributes of one request; unknown ones are absent."""
    attributes: dict[str, Value] = {
        "gen_ai.request.max_tokens": _integer(event.max_tokens),
        "gen_ai.response.finish_reasons": [
            request.reasons[sequence] for sequence in sorted(request.reasons)
        ]
        or [event.reason],
        "gen_ai.usage.input_tokens": _integer(event.prompt_tokens),
        "gen_ai.usage.output_tokens": _integer(event.output_tokens),
        "kvscope.preemptions": _integer(event.preemptions),
        "kvscope.sequences": _integer(event.sequences),
    }
    # Several choices of one prompt share it, so their hits do not add up.
    if request.cached_tokens is not None and request.prompt_tokens == event.prompt_tokens:
        attributes["gen_ai.usage.cache_read.input_tokens"] = _integer(request.cached_tokens)
    if event.queue_ns is not None:
        attributes["kvscope.queue_seconds"] = event.queue_ns / 1e9
    first = [when for name, _, when, _ in request.moments if name == "kvscope.first_token"]
    if first:
        attributes["kvscope.time_to_first_token_seconds"] = first[0] / 1e9
    if request.left_out:
        attributes["kvscope.span_events_left_out"] = request.left_out
    if event.reason == "error":
        attributes["error.type"] = event.reason
    return attributes


def _moments(request: _OpenRequest, start_ns: int, end_ns: int) -> tuple[SpanEvent, ...]:
    moments = [
        SpanEvent(
            name,
            min(end_ns, start_ns + max(0, when if since else when - request.arrived_ns)),
            attributes,
        )
        for name, attributes, when, since in request.moments
    ]
    return tuple(sorted(moments, key=attrgetter("time_ns")))


def _integer(value: int) -> int:
    """A peer may send any number, and one that cannot be encoded would fail a whole export."""
    return min(value, MAX_INTEGER)
