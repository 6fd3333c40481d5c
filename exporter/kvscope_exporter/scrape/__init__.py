"""Readings of servers' own pages, under our names: depth "page"."""

from kvscope_exporter.scrape.detect import detect
from kvscope_exporter.scrape.reader import PageReader, PageState, Reading
from kvscope_exporter.scrape.tables import TABLES, front_end_of
from kvscope_exporter.scrape.tls import Tls

__all__ = [
    "TABLES",
    "PageReader",
    "PageState",
    "Reading",
    "Tls",
    "detect",
    "front_end_of",
]
