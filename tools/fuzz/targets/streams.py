"""Answers to `kvscope load`: the stream of a completion, compressed pages, and Retry-After."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx

from exporter.fetch.error import FetchError
from exporter.fetch.unpacking import unpacker
from kvscope.load.client import Client, Exchange, RequestFailedError
from kvscope.load.retry_after import MAX_RETRY_SECONDS, retry_after
from kvscope.load.scenarios import Job
from kvscope.load.spec import LoadSpec
from tools.fuzz.target import Parse, Target

_JOB = Job(path="/v1/completions", body={"prompt": [1], "max_tokens": 64})
_PORTION = 100
_ROOM = 1 << 20
"""For what an answer unpacks to."""


class _Portions(httpx.AsyncByteStream):
    """The body in parts, as a network delivers it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._content), _PORTION):
            yield self._content[start : start + _PORTION]


@contextmanager
def _completions() -> Iterator[Parse]:
    content = b""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=_Portions(content))

    transport = httpx.MockTransport(answer)
    spec = LoadSpec(url="http://a", scenario="chat")
    http = httpx.AsyncClient(transport=transport)
    client = Client(http, spec, "fuzzed")
    with asyncio.Runner() as runner:

        def parse(received: bytes) -> bool:
            nonlocal content
            content = received
            try:
                exchange = runner.run(client.send(_JOB, lambda: None))
            except RequestFailedError:
                return False
            assert isinstance(exchange, Exchange)
            return True

        yield parse
        runner.run(http.aclose())


@contextmanager
def _waits() -> Iterator[Parse]:
    def parse(content: bytes) -> bool:
        seconds = retry_after(content.decode("latin-1"))
        assert seconds is None or 0 <= seconds <= MAX_RETRY_SECONDS
        return seconds is not None

    yield parse


@contextmanager
def _unpacked() -> Iterator[Parse]:
    def parse(content: bytes) -> bool:
        unpack = unpacker("gzip")
        room = _ROOM
        try:
            for start in range(0, len(content), _PORTION):
                room -= len(unpack(content[start : start + _PORTION], room))
                assert room >= 0, "more than there is room for"
                if not room:
                    return False
        except (FetchError, zlib.error):
            return False
        return unpack.is_complete

    yield parse


COMPLETION_STREAMS = Target(
    name="completion_streams",
    opened=_completions,
    tokens=(
        *(b"data: ", b"data: [DONE]\n\n", b"\n\n", b"\r", b"event: a\n", b": \n", b'{"choices":['),
        *(b'"usage":', b'"finish_reason":"stop"', b'"text":', b'"error":', b"-7", b"1e999"),
    ),
)
COMPRESSED_ANSWERS = Target(name="compressed_answers", opened=_unpacked)
RETRY_AFTER = Target(
    name="retry_after",
    opened=_waits,
    tokens=(b" GMT", b"-0000", b"+9999", b"Thu, ", b"99999999999999999999", b"1e9", b"_", b"nan"),
)
