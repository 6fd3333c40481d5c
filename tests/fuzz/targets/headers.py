"""Headers of a client's request that are more than text: Accept, and a trace's parent."""

from collections.abc import Iterator
from contextlib import contextmanager

from engine.server.requests import trace_id
from exporter.web.negotiation import negotiate
from tests.fuzz.target import Parse, Target


@contextmanager
def _opened() -> Iterator[Parse]:
    def parse(content: bytes) -> bool:
        text = content.decode("latin-1")
        _, content_type = negotiate(text)
        return bool(trace_id(text)) or content_type.startswith("application/")

    yield parse


HEADERS = Target(
    name="headers",
    opened=_opened,
    tokens=(
        *(b"application/openmetrics-text", b";version=1.0.0", b"text/plain", b";q=", b",", b"*/*"),
        *(b"escaping=", b"allow-utf-8", b"gzip", b"-01", b"0" * 32),
    ),
)
