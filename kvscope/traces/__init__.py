"""Request traces of all dialects, by one reader: blocks of prompts as ids, in arrival order."""

from kvscope.traces.dialects import Dialect
from kvscope.traces.reader import Trace, read_trace
from kvscope.traces.request import TraceError, TraceRequest

__all__ = ["Dialect", "Trace", "TraceError", "TraceRequest", "read_trace"]
