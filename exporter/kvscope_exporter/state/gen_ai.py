"""Latencies by operation, as OpenTelemetry's conventions for generative AI require."""

from typing import get_args

from kvscope_events.events import FirstToken, RequestFinished, SequenceFinished
from kvscope_events.vocabulary import Operation
from kvscope_exporter.state import buckets
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.calls import Request, Sequence
from kvscope_exporter.state.histogram import Histogram

OPERATIONS = tuple(operation for operation in get_args(Operation) if operation)
UNKNOWN_OPERATION = "text_completion"
"""Operation of a request whose events do not state it: a chat is a completion as well."""
ERRORS = ("", "abort", "error")
"""Error that ended a request; empty: it succeeded."""


class GenAi(CallFold):
    """Histograms in seconds, with the trace of the newest traced request in each bucket."""

    name = "gen_ai"

    def __init__(self) -> None:
        super().__init__()
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

    def on_answered(self, event: FirstToken, request: Request | None) -> None:
        self._observe(self.first_token[_operation(request),], event.elapsed_ns, request)

    def on_ended(self, event: SequenceFinished, sequence: Sequence | None) -> None:
        gaps = event.output_tokens - 1
        if gaps > 0 and event.decode_ns is not None and event.reason not in ERRORS:
            operation = _operation(None if sequence is None else sequence.request)
            self.time_per_output_token[operation,].observe(event.decode_ns / gaps / 1e9)

    def on_finished(self, event: RequestFinished, request: Request | None) -> None:
        error = event.reason if event.reason in ERRORS else ""
        self._observe(self.duration[_operation(request), error], event.elapsed_ns, request)

    def _observe(self, histogram: Histogram, elapsed_ns: int, request: Request | None) -> None:
        seconds = elapsed_ns / 1e9
        histogram.observe(seconds)
        if request is not None and request.trace_id:
            histogram.mark(seconds, request.trace_id, self.batch.wall_ns)


def _operation(request: Request | None) -> str:
    arrived = None if request is None else request.arrived
    return (arrived.operation if arrived is not None else "") or UNKNOWN_OPERATION
