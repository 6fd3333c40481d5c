"""The span of one finished request, independent of OpenTelemetry's library."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvscope_events.trace_context import NO_TRACE, TraceContext

Value = str | int | float | list[str]
Attributes = Mapping[str, Value]

MAX_INTEGER = (1 << 63) - 1
"""Largest value of an attribute, and of a time in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Moment:
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
    moments: tuple[Moment, ...] = ()
    failed: bool = False
    """Whether the server could not answer; a client that went away does not count."""
