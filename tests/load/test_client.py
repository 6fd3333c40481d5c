"""Headers, bodies and streams as servers really send them."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from kvscope.load import LoadSpec, Scenario
from kvscope.load.client import (
    DEFAULT_RETRY_SECONDS,
    MAX_RETRY_SECONDS,
    Client,
    Exchange,
    RequestFailedError,
    error_detail,
    retry_seconds,
)
from kvscope.load.scenarios import Job

STREAM = (
    ': ping\n\ndata: {"choices": [{"text": "a\u2028"}]}\n\n'
    'data:{"choices": [{"text": "b", "finish_reason": "stop"}]}\r\n\r\n'
    'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, '
    '"prompt_tokens_details": {"cached_tokens": 4}}}\n\ndata: [DONE]\n\n'
).encode()


class Cut(httpx.AsyncByteStream):
    """A body in portions, as a network delivers it."""

    def __init__(self, content: bytes, portion: int) -> None:
        self._parts = [content[i : i + portion] for i in range(0, len(content), portion)]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


def received(content: bytes, portion: int = 1 << 20) -> Exchange:
    async def send() -> Exchange:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Cut(content, portion)))
        async with httpx.AsyncClient(transport=transport) as http:
            client = Client(http, LoadSpec(url="http://a", scenario=Scenario.CHAT), "m")
            return await client.send(Job(path="/v1/completions", body={}), lambda: None)

    return asyncio.run(send())


@pytest.mark.parametrize("portion", [1, 2, 7, 1000])
def test_a_stream_reads_the_same_however_it_is_cut(portion: int) -> None:
    exchange = received(STREAM, portion)
    assert (exchange.text, exchange.num_chunks) == ("a\u2028b", 2)
    usage = exchange.usage
    assert (usage.prompt_tokens, usage.output_tokens, usage.cached_tokens) == (9, 2, 4)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'data: {"error": {"message": "out of memory"}}\n\n', "stream"),
        (b"data: [[\n\n", "stream"),
        (b'data: {"choices": [{"text": "a"}]}\n\n', "incomplete"),
        (b"", "incomplete"),
    ],
)
def test_a_stream_that_brings_no_whole_reply_fails(content: bytes, kind: str) -> None:
    with pytest.raises(RequestFailedError) as failed:
        received(content)
    assert failed.value.kind == kind


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, DEFAULT_RETRY_SECONDS),
        ("3", 3.0),
        ("0.25", 0.25),
        ("0", 0.0),
        ("-1", DEFAULT_RETRY_SECONDS),
        ("nan", DEFAULT_RETRY_SECONDS),
        ("86400", MAX_RETRY_SECONDS),
        ("Wed, 21 Oct 2015 07:28:00 GMT", DEFAULT_RETRY_SECONDS),
    ],
)
def test_retry_after(header: str | None, seconds: float) -> None:
    assert retry_seconds(header) == seconds


def test_error_detail_is_the_message_or_the_body() -> None:
    assert error_detail(b'{"error": {"message": "too long"}}') == "too long"
    assert error_detail(b"<html>bad gateway</html>") == "<html>bad gateway</html>"


def test_error_detail_cannot_steer_the_terminal_nor_fill_it() -> None:
    detail = error_detail(b'{"error": {"message": "no\\u001b[2J\\nroom"}}')
    assert detail == r"no\x1b[2J room"
    assert len(error_detail(b"x" * 100_000)) == 200
    assert error_detail(b"[" * 100_000).startswith("[[[")
