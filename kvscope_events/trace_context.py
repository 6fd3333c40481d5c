"""W3C Trace Context: the trace of a request, from its `traceparent` header."""

import re
from typing import NamedTuple

_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?",
    re.ASCII,
)
_SAMPLED = 0x01


class TraceContext(NamedTuple):
    """Ids in lower-case hexadecimal digits; both are empty without a trace."""

    trace_id: str = ""
    parent_span_id: str = ""
    sampled: bool = False
    """The caller records this trace."""


NO_TRACE = TraceContext()


def trace_context(traceparent: str | None) -> TraceContext:
    """Parse the header; `NO_TRACE` if it is missing or not valid.

    A version later than 00 may have more fields, which are not read. Version ff and all-zero ids
    are not valid. Source: https://www.w3.org/TR/trace-context/
    """
    match = _TRACEPARENT.fullmatch((traceparent or "").strip(" \t"))
    if match is None or match["version"] == "ff" or (match["version"] == "00" and match["more"]):
        return NO_TRACE
    trace_id, parent_span_id = match["trace"], match["parent"]
    if not trace_id.strip("0") or not parent_span_id.strip("0"):
        return NO_TRACE
    return TraceContext(trace_id, parent_span_id, bool(int(match["flags"], 16) & _SAMPLED))
