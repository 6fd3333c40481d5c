"""Where batches come from."""

from exporter.sources.inprocess import InProcessSource
from exporter.sources.source import Source

__all__ = ["InProcessSource", "Source"]
