"""Headers of a client's request that are more than text, those that ask for admission included."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from kvscope_events.trace_context import trace_context
from kvscope_exporter.targets.exposition import accepts_gzip, negotiate
from kvscope_exporter.web.access import AccessConfig, Credentials
from kvscope_exporter.web.refusal import Refused
from tools.fuzz.target import Parse, Target

_HASH = b"$2b$04$AAAAAAAAAAAAAAAAAAAAAOAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


@contextmanager
def _wishes() -> Iterator[Parse]:
    def parse(content: bytes) -> bool:
        text = content.decode("latin-1")
        _, content_type = negotiate(text)
        return (
            bool(trace_context(text).trace_id)
            or content_type.startswith("application/")
            or accepts_gzip(text)
        )

    yield parse


@contextmanager
def _admissions() -> Iterator[Parse]:
    """An input is the value of Authorization, a line end, Host, a line end, and Origin."""
    keys = Credentials(["a-key"], {"user": _HASH})
    same_origin = AccessConfig().guards["control"]
    with asyncio.Runner() as runner:

        def parse(content: bytes) -> bool:
            authorization, host, origin = (*content.split(b"\n", 2), b"", b"")[:3]
            headers = [
                *((b"authorization", authorization), (b"host", host)),
                (b"content-type", b"application/json"),
            ]
            if origin:
                headers.append((b"origin", origin))
            scope = {"type": "http", "scheme": "http", "headers": headers, "server": None}
            admitted = 0
            for guard in (keys, same_origin):
                try:
                    runner.run(guard.admit(scope))
                except Refused:
                    continue
                admitted += 1
            return admitted > 0

        yield parse


HEADERS = Target(
    name="headers",
    opened=_wishes,
    tokens=(
        *(b"application/openmetrics-text", b";version=1.0.0", b"text/plain", b";q=", b",", b"*/*"),
        *(b"escaping=", b"allow-utf-8", b"gzip", b"-01", b"0" * 32),
    ),
)
ADMISSIONS = Target(
    name="admissions",
    opened=_admissions,
    tokens=(
        *(b"Bearer ", b"Basic ", b"a-key", b"dXNlcjpwYXNz", b"http://", b"localhost", b"[::1]"),
        *(b":8000", b"127.0.0.1", b"xn--", b"%", b"\n"),
    ),
)
