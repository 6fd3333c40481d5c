"""Pages of metrics, as `doctor` and the sidecar read them.

An input is read both as OpenMetrics and as text.
"""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from kvscope.answer_document import AnswerError
from kvscope.doctor.scrape import parse_page
from kvscope_exporter.scrape.detect import detect
from kvscope_exporter.scrape.mapping import PageMapper
from kvscope_exporter.scrape.tables import TABLES
from tools.fuzz.target import Parse, Target

_TYPES = ("application/openmetrics-text; version=1.0.0", "text/plain; version=0.0.4")
_NOW = 1.7e9


@contextmanager
def _pages() -> Iterator[Parse]:
    yield _parse_page


def _parse_page(content: bytes) -> bool:
    taken = False
    for content_type in _TYPES:
        with contextlib.suppress(AnswerError):
            taken |= bool(parse_page(content, content_type, "http://a/metrics").by_name)
    return taken


@contextmanager
def _readings() -> Iterator[Parse]:
    mappers = {kind: [PageMapper(table) for table in tables] for kind, tables in TABLES.items()}

    def parse(content: bytes) -> bool:
        text = content.decode(errors="replace")
        kind = detect(text)
        for mapper in mappers.get(kind, ()) if kind is not None else ():
            mapper.read(text, now=_NOW)
        return kind is not None

    yield parse


_TOKENS = (
    *(b"# TYPE ", b"# HELP ", b"# UNIT ", b"# EOF\n", b" counter\n", b" histogram\n", b'{le="'),
    *(b"_bucket", b"_total", b"_created", b'"}', b" NaN", b" +Inf", b' # {a="b"} 1', b"\\", b"\t"),
)
METRICS_PAGES = Target(name="metrics_pages", opened=_pages, tokens=_TOKENS)
SERVER_PAGES = Target(name="server_pages", opened=_readings, tokens=_TOKENS)
