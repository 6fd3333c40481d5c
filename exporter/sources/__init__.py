"""Sources of batches, and the events that each kind of server can report."""

from exporter.sources.inprocess import InProcessSource
from exporter.sources.source import Seen, Source

__all__ = ["InProcessSource", "Seen", "Source"]
