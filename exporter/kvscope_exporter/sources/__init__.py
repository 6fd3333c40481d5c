"""Sources of batches, and the events that each kind of server can report."""

from kvscope_exporter.sources.source import Source, SourceStatus

__all__ = ["Source", "SourceStatus"]
