"""Sources of batches, and the events that each kind of server can tell."""

from exporter.sources.inprocess import InProcessSource
from exporter.sources.source import Source

__all__ = ["InProcessSource", "Source"]
