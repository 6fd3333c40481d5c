"""Latencies by operation, as OpenTelemetry's conventions for generative AI require."""

from typing import NamedTuple, get_args

from kvscope_events.events import (
    FirstToken,
    RequestArrived,
    RequestFinished,
    SequenceAdded,
    SequenceFinished,
)
from kvscope_events.vocabulary import Operation
from kvscope_exporter.state import buckets
from kvscope_exporter.state.fold import Fold
from kvscope_exporter.state.histogram import Histogram

OPERATIONS = tuple(operation for operation in get_args(Operation) if operation)
UNKNOWN_OPERATION = "text_completion"
"""Operation of a request whose events do not state it: a chat is a completion as well."""
ERRORS = ("", "abort", "error")
"""Error that ended a request; empty: it succeeded."""


class _Call(NamedTuple):
    operation: str
    trace_id: str


_UNKNOWN = _Call(UNKNOWN_OPERATION, "")


class GenAi(Fold):
    """Histograms in seconds, with the trace of the newest traced request in each bucket."""

    name = "gen_ai"

    def __init__(self) -> None:
        super().__init__(
            {
                RequestArrived: self._arrived,
                SequenceAdded: self._added,
                FirstToken: self._first_token,
                SequenceFinished: self._ended,
                RequestFinished: self._finished,
            }
        )
        self.duration: dict[tuple[str, ...], Histogram] = {
            (operation, error): Histogram(buckets.GEN_AI_REQUEST_SECONDS)
            for operation in OPERATIONS
            for error in ERRORS
        }
        self.first_token: dict[tuple[str, ...], Histogram] = {
            (operation,): Histogram(buckets.GEN_AI_FIRST_TOKEN_SECONDS) for operation in OPERATIONS
        }
        self.time_per_output_token: dict[tuple[str, ...], Histogram] = {
            (operation,): Histogram(buckets.GEN_AI_OUTPUT_TOKEN_SECONDS) for operation in OPERATIONS
        }
        """Mean after the first token, of sequences that succeeded."""
        self._calls: dict[int, _Call] = {}  # only those that differ from _UNKNOWN
        self._sequences: dict[int, str] = {}  # operation of the calls in _calls

    @property
    def num_pending(self) -> int:
        return len(self._calls) + len(self._sequences)

    def on_gap(self) -> None:
        self._calls.clear()
        self._sequences.clear()

    def _arrived(self, event: RequestArrived) -> None:
        call = _Call(event.operation or UNKNOWN_OPERATION, event.trace_id)
        if call != _UNKNOWN:
            self._calls[event.request] = call

    def _added(self, event: SequenceAdded) -> None:
        if self._calls:
            call = self._calls.get(event.request)
            if call is not None:
                self._sequences[event.sequence] = call.operation

    def _first_token(self, event: FirstToken) -> None:
        call = self._calls.get(event.request, _UNKNOWN)
        self._observe(self.first_token[call.operation,], event.elapsed_ns, call)

    def _ended(self, event: SequenceFinished) -> None:
        operation = self._sequences.pop(event.sequence, UNKNOWN_OPERATION)
        gaps = event.output_tokens - 1
        if gaps > 0 and event.decode_ns is not None and event.reason not in ERRORS:
            self.time_per_output_token[operation,].observe(event.decode_ns / gaps / 1e9)

    def _finished(self, event: RequestFinished) -> None:
        call = self._calls.pop(event.request, _UNKNOWN)
        error = event.reason if event.reason in ERRORS else ""
        self._observe(self.duration[call.operation, error], event.elapsed_ns, call)

    def _observe(self, histogram: Histogram, elapsed_ns: int, call: _Call) -> None:
        seconds = elapsed_ns / 1e9
        histogram.observe(seconds)
        if call.trace_id:
            histogram.mark(seconds, call.trace_id, self.batch.wall_ns)
