"""Load for any OpenAI-compatible server: scenarios, trace replay, and a report. No torch."""

from engine.workload.documents import Document, DocumentError, Documents
from engine.workload.mooncake import TRACE_BLOCK_TOKENS, TraceError, TraceRequest, read_trace
from engine.workload.report import Progress, Report
from engine.workload.runner import StoppedError, run
from engine.workload.server import ServerError
from engine.workload.spec import LoadSpec, Scenario, SpecError
from engine.workload.tokens import BlockTokens

__all__ = [
    "TRACE_BLOCK_TOKENS",
    "BlockTokens",
    "Document",
    "DocumentError",
    "Documents",
    "LoadSpec",
    "Progress",
    "Report",
    "Scenario",
    "ServerError",
    "SpecError",
    "StoppedError",
    "TraceError",
    "TraceRequest",
    "read_trace",
    "run",
]
