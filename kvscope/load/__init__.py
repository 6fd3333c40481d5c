"""Load for any OpenAI-compatible server: scenarios, trace replay, and a report. No torch."""

from kvscope.load.report import Progress, Report
from kvscope.load.runner import StoppedError, run
from kvscope.load.server import ServerError
from kvscope.load.spec import LoadSpec, Scenario
from kvscope.load.tokens import BlockTokens

__all__ = [
    "BlockTokens",
    "LoadSpec",
    "Progress",
    "Report",
    "Scenario",
    "ServerError",
    "StoppedError",
    "run",
]
