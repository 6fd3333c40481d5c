"""Readings of servers' own pages, under our names: depth "page"."""

from exporter.readings.detect import detect
from exporter.readings.reader import PageReader, PageState, Reading
from exporter.readings.tables import TABLES, front_end_of
from exporter.readings.tls import Tls

__all__ = [
    "TABLES",
    "PageReader",
    "PageState",
    "Reading",
    "Tls",
    "detect",
    "front_end_of",
]
