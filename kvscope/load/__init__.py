"""Load for any OpenAI-compatible server: scenarios, trace replay, and a report. No torch."""

from kvscope.load.report import Progress, Report
from kvscope.load.runner import StoppedError, run
from kvscope.load.server import ServerError
from kvscope.load.spec import LoadSpec, Scenario
from kvscope.load.tokens import BlockTokens
from kvscope.mooncake import TRACE_BLOCK_TOKENS, TraceError, TraceRequest, read_trace

__all__ = [
    "TRACE_BLOCK_TOKENS",
    "BlockTokens",
    "LoadSpec",
    "Progress",
    "Report",
    "Scenario",
    "ServerError",
    "StoppedError",
    "TraceError",
    "TraceRequest",
    "read_trace",
    "run",
]
