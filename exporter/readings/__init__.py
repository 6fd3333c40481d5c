"""What servers say of themselves on their own pages, in our names: depth "page"."""

from exporter.readings.detect import detect
from exporter.readings.reader import PageReader, Reading
from exporter.readings.tables import TABLES
from exporter.readings.tls import Tls
from kvscope_events.vocabulary import ServerKind

__all__ = ["TABLES", "PageReader", "Reading", "Tls", "detect", "metrics_path"]


def metrics_path(kind: ServerKind | str) -> str:
    """Where a kind of server has its page, unless configured otherwise."""
    return "/prometheus/metrics" if kind == "tensorrt-llm" else "/metrics"
