"""Content that referenced blocks lost."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from exporter.collect.families import Families
from exporter.fold.content import Content
from kvscope_events.events import Hello


def collect_content(families: Families, content: Content, _engine: Hello) -> Iterator[Family]:
    yield families.column("kvscope_kv_content_dropped_blocks_total", content.dropped)
