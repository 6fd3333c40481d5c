"""Readings of servers' own pages, under our names: depth "page"."""

from exporter.readings.detect import detect
from exporter.readings.reader import PageReader, PageState, Reading
from exporter.readings.tables import TABLES, front_end_of
from exporter.readings.tls import Tls
from kvscope_events.vocabulary import ServerKind

__all__ = [
    "TABLES",
    "PageReader",
    "PageState",
    "Reading",
    "Tls",
    "detect",
    "front_end_of",
    "metrics_path",
]


def metrics_path(kind: ServerKind | str) -> str:
    """The default path of a kind of server's page."""
    return "/prometheus/metrics" if kind == "tensorrt-llm" else "/metrics"
