"""One document over HTTP: its whole time, its size after unpacking, and why it was refused."""

import asyncio
import gc
import socket
import time
import tracemalloc
import zlib

import httpx
import pytest

from kvscope_exporter.fetch.attempt import Reply
from kvscope_exporter.fetch.error import FetchError
from kvscope_exporter.fetch.fetch import Fetcher
from tests.support.hostile import Answer, bomb, drip, endless, head, response, serving
from tests.support.waiting import wait_for

REFUSED = "503 No"


def fetch(answer: Answer, seconds: float = 5.0, **changes: int) -> Reply:
    with serving({"/": answer}) as server, httpx.Client(trust_env=False) as client:
        return Fetcher(client, server.url + "/", headers={}, **changes).fetch(seconds)


def refusal(answer: Answer, seconds: float = 5.0, **changes: int) -> FetchError:
    with pytest.raises(FetchError) as caught:
        fetch(answer, seconds, **changes)
    return caught.value


@pytest.mark.parametrize(
    "answer",
    [drip(b"", b"H"), drip(b"HTTP/1.1 200 OK\r\nX: ", b"x"), drip(head(), b"x")],
    ids=["status line", "header", "body"],
)
@pytest.mark.timed
def test_the_time_is_that_of_the_whole_answer(answer: Answer) -> None:
    started = time.monotonic()
    error = refusal(answer, 0.3)
    assert (error.kind, str(error)) in (
        ("timeout", "did not end in time"),
        ("protocol", "illegal status line: bytearray(b'HHHHHHHH')"),
    )
    assert time.monotonic() - started < 3


def test_the_size_is_that_after_unpacking() -> None:
    assert refusal(bomb(64), max_bytes=1 << 20).kind == "too_large"
    assert refusal(endless(head(), b"x" * 65536), max_bytes=1 << 20).kind == "too_large"
    assert fetch(response(b"x" * 100), max_bytes=100).body == b"x" * 100


def test_a_refusal_has_its_status_and_the_beginning_of_its_body() -> None:
    error = refusal(response(b"overloaded", status=REFUSED), refusal_bytes=4)
    assert (error.kind, error.status, error.body) == ("status", 503, b"over")
    assert refusal(response(b"overloaded", status=REFUSED)).body == b""
    endlessly = endless(head(status=REFUSED), b"x" * 65536)
    assert refusal(endlessly, refusal_bytes=4).body == b"xxxx"


def test_a_refusal_whose_body_drips_is_a_refusal() -> None:
    error = refusal(drip(head(status=REFUSED), b"x"), 0.5, refusal_bytes=4096)
    assert (error.kind, error.status, str(error)) == ("status", 503, "answered 503")


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "http://127.0.0.1:0/", "http://a..b/"])
def test_a_url_that_cannot_be_asked_is_said(url: str) -> None:
    with httpx.Client(trust_env=False) as client, pytest.raises(FetchError) as caught:
        Fetcher(client, url, headers={}).fetch(5)
    assert caught.value.kind == "url"


def test_content_is_posted() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=iter([b"{}"]))

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        Fetcher(client, "http://a/", headers={"X": "y"}, content=b"[1]").fetch(5)
    assert (seen[0].method, seen[0].content, seen[0].headers["X"]) == ("POST", b"[1]", "y")


@pytest.mark.timed
def test_an_event_loop_goes_on_and_can_stop_waiting() -> None:
    async def ask(url: str, client: httpx.Client) -> str:
        fetcher = Fetcher(client, url, headers={})
        asking = asyncio.create_task(fetcher.fetched(30.0))
        await asyncio.sleep(0.1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        try:
            await Fetcher(client, url, headers={}).fetched(0.2)
        except FetchError as error:
            return error.kind
        raise AssertionError("the answer has no end")

    started = time.monotonic()
    with serving({"/": drip(head(), b"x")}) as server, httpx.Client(trust_env=False) as client:
        assert asyncio.run(ask(server.url + "/", client)) == "timeout"
    assert time.monotonic() - started < 5


def dropped(body: bytes) -> Answer:
    """Declares more than it sends."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(head(f"Content-Length: {len(body) + 9}") + body)

    return answer


LARGE = b"x" * (4 << 20)
LATE = head() + LARGE
LATE_REFUSAL = head(status=REFUSED) + LARGE


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (endless(head(), LARGE), "too_large"),
        (dropped(LARGE), "truncated"),
        (drip(LATE), "timeout"),
        (response(zlib.compress(LARGE, wbits=31)[:-9], "Content-Encoding: gzip"), "truncated"),
        (response(zlib.compress(LARGE, wbits=31) + LARGE, "Content-Encoding: gzip"), "encoding"),
        (drip(LATE_REFUSAL), "status"),
        (response(LARGE), None),
    ],
    ids=["too large", "cut off", "late", "cut in its encoding", "encoding", "refusal", "document"],
)
def test_nothing_of_an_answer_stays_once_its_caller_has_dropped_it(
    answer: Answer, kind: str | None
) -> None:
    limits = {"max_bytes": 5 << 20, "refusal_bytes": 4096}
    gc.collect()
    gc.disable()  # what only the collector frees piles up until it comes by
    tracemalloc.start()
    try:
        with serving({"/": answer}) as server, httpx.Client(trust_env=False) as client:
            fetcher = Fetcher(client, server.url + "/", headers={}, **limits)
            found = None
            try:
                fetcher.fetch(1.0)
            except FetchError as error:
                found = error.kind
            assert found == kind
            wait_for(lambda: tracemalloc.get_traced_memory()[0] < 1 << 20, "memory freed", 10)
    finally:
        tracemalloc.stop()
        gc.enable()
