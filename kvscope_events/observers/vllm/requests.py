"""Numbers and times of vLLM's requests, and the events made of them.

Each of vLLM's requests is one sequence of one request of ours, both with the same number. Times
come from the monotonic clock of this process, which is that of vLLM's own timestamps of the core.
"""

import time
from collections.abc import Iterator
from typing import Any

from kvscope_events.events import (
    EngineEvent,
    RequestArrived,
    RequestFinished,
    SequenceAdded,
    SequenceFinished,
)
from kvscope_events.limits import MAX_COUNT, count_of, label_of
from kvscope_events.tenants import TENANT_FIELD, tenant_digest
from kvscope_events.trace_context import NO_TRACE, TraceContext, trace_context
from kvscope_events.vocabulary import FinishReason, ReleaseCause

_REASONS: dict[str, FinishReason] = {
    "FINISHED_STOPPED": "stop",
    "FINISHED_REPETITION": "stop",
    "FINISHED_LENGTH_CAPPED": "length",
    "FINISHED_IGNORED": "length",
    "FINISHED_ABORTED": "abort",
}
_WITH_TOKENS = ("stop", "length", "stop_string_or_abort")
"""Finish reasons of a sequence that was served, as far as its scheduler knows."""


class Sequence:
    """State of one vLLM request. Times that it has not reached are None."""

    __slots__ = (
        "admitted_ns",
        "arrived_ns",
        "computed_tokens",
        "discarded_tokens",
        "ended",
        "first_token_ns",
        "last_token_ns",
        "local_tokens",
        "number",
        "preempted_ns",
        "queue_ns",
        "scheduled_ns",
    )

    def __init__(self, number: int, arrived_ns: int) -> None:
        self.number = number
        self.arrived_ns = arrived_ns
        self.queue_ns: int | None = None  # arrival to the step that first scheduled it
        self.scheduled_ns: int | None = None  # first scheduled
        self.admitted_ns: int | None = None  # last (re)admitted
        self.first_token_ns: int | None = None
        self.last_token_ns: int | None = None
        self.preempted_ns: int | None = None  # None: it is not a waiting victim
        self.discarded_tokens = 0
        self.local_tokens = 0  # found in the pool at the last look-up
        self.computed_tokens: int | None = None  # of the prompt, at first admission
        self.ended = False


class Sequences:
    """The requests that vLLM holds, by its ids; one that ended stays while it holds blocks."""

    def __init__(self) -> None:
        self._by_id: dict[str, Sequence] = {}
        self.find = self._by_id.get
        self._last = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def number_from(self, others: "Sequences") -> None:
        """Give no number again that those have given."""
        self._last = others._last

    def number_of(self, request: Any) -> int | None:
        """None: it came before the observer did."""
        sequence = self._by_id.get(request.request_id)
        return None if sequence is None else sequence.number

    def add(self, request: Any, now_ns: int) -> Sequence:
        self._last += 1
        sequence = self._by_id[request.request_id] = Sequence(self._last, now_ns)
        return sequence

    def forget(self, request_id: str) -> None:
        self._by_id.pop(request_id, None)


def arrival(request: Any, sequence: Sequence) -> Iterator[EngineEvent]:
    number, prompt_tokens = sequence.number, int(request.num_prompt_tokens)
    max_tokens = count_of(request.max_tokens)
    trace = trace_of(getattr(request, "trace_headers", None))
    yield RequestArrived(
        number,
        prompt_tokens,
        max_tokens,
        tenant_of(request),
        *trace,
        adapter=adapter_of(request),
        tenant_digest=True,
        priority=_priority(getattr(request, "priority", None)),
        taken_ns=_taken_ns(getattr(request, "arrival_time", None)),
    )
    yield SequenceAdded(number, number, prompt_tokens, max_tokens)


class Ending:
    """A sequence that ended, with vLLM's figures of that moment; reported at the step's end."""

    __slots__ = (
        "max_tokens",
        "now_ns",
        "output_tokens",
        "preemptions",
        "prompt_tokens",
        "reason",
        "sequence",
    )

    def __init__(self, request: Any, sequence: Sequence, now_ns: int) -> None:
        self.sequence = sequence
        self.now_ns = now_ns
        self.reason: FinishReason = finish_reason(request)
        self.prompt_tokens = int(request.num_prompt_tokens)
        self.output_tokens = int(request.num_output_tokens)
        self.max_tokens = count_of(request.max_tokens)
        self.preemptions = int(getattr(request, "num_preemptions", 0))

    def events(self) -> Iterator[EngineEvent]:
        sequence = self.sequence
        number, arrived_ns = sequence.number, sequence.arrived_ns
        # Its last token may carry vLLM's timestamp, which is slightly later than ours.
        elapsed_ns = max(self.now_ns, sequence.last_token_ns or 0) - arrived_ns
        queue_ns = sequence.queue_ns
        yield SequenceFinished(
            number,
            number,
            self.reason,
            self.prompt_tokens,
            self.output_tokens,
            self.max_tokens,
            self.preemptions,
            elapsed_ns,
            queue_ns,
            _between(sequence.scheduled_ns, sequence.first_token_ns),
            _between(sequence.first_token_ns, sequence.last_token_ns),
            sequence.computed_tokens,
        )
        yield RequestFinished(
            number,
            self.reason,
            self.prompt_tokens,
            self.output_tokens,
            self.max_tokens,
            self.preemptions,
            elapsed_ns,
            queue_ns,
        )


def finish_reason(request: Any) -> FinishReason:
    """The reason a request ended. vLLM's API server looks for stop strings, then aborts."""
    reason = _REASONS.get(request.status.name, "error")
    if reason != "abort" or not request.num_output_tokens:
        return reason
    sampling = getattr(request, "sampling_params", None)
    return "stop_string_or_abort" if getattr(sampling, "stop", None) else "abort"


def release_cause(request: Any) -> ReleaseCause:
    """The reason all blocks of this request are given back."""
    if request.is_finished():
        return "finished" if finish_reason(request) in _WITH_TOKENS else "aborted"
    return "preempted" if request.status.name == "RUNNING" else "failed_load"


def computed_tokens(request: Any) -> int:
    """Tokens whose KV exists: vLLM also counts those in flight, which are not computed yet."""
    in_flight = getattr(request, "num_in_flight_tokens", None)  # since 0.26
    if in_flight is None:
        in_flight = getattr(request, "num_output_placeholders", 0)
    return max(0, int(request.num_computed_tokens - in_flight))


def tenant_of(request: Any) -> str:
    """The digest that the API server has handed on, else that of the salt of the request's cache,
    else of its session; empty: it has none of them."""
    headers = getattr(request, "trace_headers", None) or {}
    return headers.get(TENANT_FIELD) or tenant_digest(
        getattr(request, "cache_salt", None) or getattr(request, "session_id", None)
    )


def adapter_of(request: Any) -> str:
    """Name of the request's LoRA adapter; empty: it has none."""
    adapter = getattr(request, "lora_request", None)
    return label_of(getattr(adapter, "lora_name", "")) if adapter is not None else ""


def trace_of(headers: Any) -> TraceContext:
    """The trace context in the W3C traceparent among these headers."""
    return trace_context(str(headers.get("traceparent") or "")) if headers else NO_TRACE


def _priority(given: Any) -> int | None:
    """A number that a client chose, which the wire has to hold."""
    return max(-MAX_COUNT, min(MAX_COUNT, given)) if isinstance(given, int) else None


def _taken_ns(arrival_time: float | None) -> int | None:
    """Nanoseconds since a moment of the wall clock, which is the one that all processes share."""
    return None if arrival_time is None else count_of(int(1e9 * (time.time() - arrival_time)))


def _between(begin_ns: int | None, end_ns: int | None) -> int | None:
    return None if begin_ns is None or end_ns is None else max(0, end_ns - begin_ns)
