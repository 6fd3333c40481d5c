"""Connections of a listener: slow, silent and malformed clients cost no other client its answer."""

import asyncio
import contextlib
import errno
import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from kvscope_exporter.web import http_server
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.limits import Limits
from kvscope_exporter.web.server import BURST
from tests.support.waiting import WAIT_SECONDS, wait_for

pytestmark = pytest.mark.waits

SHORT = Limits(idle_seconds=0.3, body_seconds=0.6)
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


class App:
    """Says what it is asked for, and remembers which clients have gone."""

    def __init__(self) -> None:
        self.gone = 0
        self.waiting = 0
        self.release = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        match scope["path"]:
            case "/wait":
                await self._wait(receive)
            case "/live/events":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await self._wait(receive)
                return
            case "/endless":
                await self._endless(receive, send)
                return
            case "/lingering":
                self.waiting += 1
                while not self.release.is_set():
                    await asyncio.sleep(0.01)
                self.waiting -= 1
            case "/heedless":
                await self._heedless(send)
                return
            case "/echo":
                while (await receive()).get("more_body"):
                    pass
        await send({"type": "http.response.start", "status": 200, "headers": [LENGTH]})
        await send({"type": "http.response.body", "body": b"fine"})

    async def _wait(self, receive: Receive) -> None:
        """Until the test says so, or the client has gone."""
        await receive()  # the request itself
        gone = asyncio.ensure_future(receive())
        self.waiting += 1
        while not self.release.is_set() and not gone.done():
            await asyncio.sleep(0.01)
        self.waiting -= 1
        self.gone += gone.done()
        gone.cancel()

    async def _endless(self, receive: Receive, send: Send) -> None:
        await receive()
        gone = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            await asyncio.sleep(0)
        self.gone += 1

    async def _heedless(self, send: Send) -> None:
        """Sends on and on after the client has gone, before the event loop can notice it."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        time.sleep(0.3)
        for left in reversed(range(50)):
            body = {"type": "http.response.body", "body": b"x" * 1024}
            await send({**body, "more_body": left > 0})
        self.gone += 1


LENGTH = (b"content-length", b"4")


@contextmanager
def listening(app: Any, limits: Limits = SHORT) -> Iterator[HttpServer]:
    with HttpServer(app, "127.0.0.1", 0, limits=limits) as server:
        yield server


def connect(server: HttpServer, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    client.sendall(sent)
    return client


def read_until(client: socket.socket, end: bytes) -> None:
    answer = b""
    while not answer.endswith(end):
        part = client.recv(65536)
        assert part, answer
        answer += part


def read_to_end(client: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_a_body_that_drips_does_not_keep_a_connection() -> None:
    with listening(App()) as server, connect(server, POST) as client:
        started = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - started < WAIT_SECONDS:
                client.sendall(b"1\r\na\r\n")
                time.sleep(0.05)
        assert time.monotonic() - started < WAIT_SECONDS


def test_a_client_that_never_reads_is_dropped_and_the_app_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "UNREAD_SECONDS", 0.5)
    app = App()
    with (
        listening(app) as server,
        connect(server, GET.replace(b" /", b" /endless")),
    ):
        wait_for(lambda: app.gone == 1, "the app hears that the client is gone")


def test_a_client_that_reads_slowly_is_served() -> None:
    app = App()
    with listening(app) as server, connect(server, GET.replace(b" /", b" /endless")) as client:
        for _ in range(20):
            assert client.recv(1 << 20)
            time.sleep(0.1)
        assert app.gone == 0


def test_a_request_of_a_client_that_has_closed_is_ended() -> None:
    app = App()
    with listening(app) as server:
        client = connect(server, GET.replace(b" /", b" /wait"))
        wait_for(lambda: app.waiting == 1, "the request is under way")
        client.close()
        wait_for(lambda: app.gone == 1, "the app hears that the client is gone")


def test_pages_are_scraped_while_fifty_connections_say_nothing_or_read_nothing() -> None:
    app = App()
    begun = (b"", b"GET /hea", POST + b"1\r\na\r\n", GET, GET.replace(b" /", b" /endless"))
    with listening(app, Limits(max_requests=64)) as server, ExitStack() as stack:
        for number in range(50):
            stack.enter_context(connect(server, begun[number % len(begun)]))
        for _ in range(3):
            began = time.monotonic()
            assert httpx.get(f"http://127.0.0.1:{server.port}/metrics").text == "fine"
            assert time.monotonic() - began < 1
            time.sleep(1 - (time.monotonic() - began))


def test_requests_that_wait_for_answers_leave_room_for_health_and_metrics() -> None:
    app = App()
    with listening(app, Limits(max_requests=16)) as server, ExitStack() as stack:
        url = f"http://127.0.0.1:{server.port}"
        for _ in range(14):
            stack.enter_context(connect(server, GET.replace(b" /", b" /wait")))
        wait_for(lambda: app.waiting == 14, "they are being served")
        refused = httpx.get(f"{url}/v1")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "too many requests" in refused.json()["error"]["message"]
        assert httpx.get(f"{url}/health").text == "fine"
        assert httpx.get(f"{url}/metrics").text == "fine"
        app.release.set()
        wait_for(lambda: app.waiting == 0, "they have been served")
        assert httpx.get(f"{url}/v1").text == "fine"


def _is_over(app: App, number: int) -> bool:
    return app.waiting > number


def test_requests_whose_clients_have_gone_leave_room_for_health() -> None:
    app = App()
    with listening(app, Limits(max_requests=16)) as server:
        for number in range(14):
            client = connect(server, GET.replace(b" /", b" /lingering"))
            wait_for(partial(_is_over, app, number), "the request is under way")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
        assert httpx.get(f"http://127.0.0.1:{server.port}/v1").status_code == 503
        assert httpx.get(f"http://127.0.0.1:{server.port}/health").text == "fine"
        app.release.set()
        wait_for(lambda: app.waiting == 0, "they end")


def test_without_files_left_an_accept_is_tried_again_and_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = socket.socket.accept
    tried = 0
    exhausted = True

    def failing(listener: socket.socket) -> Any:
        nonlocal tried
        tried += 1
        if exhausted:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    with listening(App()) as server:
        monkeypatch.setattr(socket.socket, "accept", failing)
        with connect(server, GET) as client:
            wait_for(lambda: tried > BURST, "it is tried a second time")
            assert tried <= 8 * BURST, "not in a hurry"
            exhausted = False
            read_until(client, b"fine")
    assert caplog.text.count("Too many open files") == 1
    assert "Traceback" not in caplog.text


BAD = {
    "chunk": POST + b"zz\r\n",
    "chunk in a streamed answer": POST.replace(b"/echo", b"/endless") + b"zz\r\n",
    "header": b"\0\0\0\r\n\r\n",
    "second request": GET + b"\0\0\0\r\n\r\n",
    "huge header": b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000,
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "upgrade": GET[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
}


@pytest.mark.parametrize("sent", BAD.values(), ids=BAD)
def test_what_is_no_http_is_one_line_a_minute(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(App()) as server:
        for _ in range(20):
            with connect(server) as client, contextlib.suppress(OSError):
                client.sendall(sent)
                client.settimeout(0.2)
                client.recv(1000)
        assert httpx.get(f"http://127.0.0.1:{server.port}/").text == "fine"
    assert "Traceback" not in caplog.text
    assert len(caplog.records) <= 3, caplog.text


def test_a_request_with_a_length_and_chunks_is_refused_and_the_last_of_its_connection() -> None:
    """RFC 9112, section 6.1: a proxy that went by the length would take the rest for another's."""
    both = POST[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n"
    with listening(App()) as server, connect(server, both + GET) as client:
        answer = read_to_end(client)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_request_to_upgrade_is_answered_as_any_other() -> None:
    with listening(App()) as server, connect(server, BAD["upgrade"]) as client:
        read_until(client, b"fine")


@pytest.mark.parametrize("path", [b"/", b"/wait", b"/endless"])
def test_a_client_that_resets_its_connection_leaves_no_traceback(
    path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()
    with listening(app) as server:
        for _ in range(50):
            client = connect(server, GET.replace(b" /", b" " + path))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
        assert httpx.get(f"http://127.0.0.1:{server.port}/").text == "fine"
        wait_for(lambda: app.waiting == 0, "no request is left")
    assert [r for r in caplog.records if r.levelno > logging.WARNING] == []
    assert "Traceback" not in caplog.text


def test_what_is_sent_to_a_client_that_has_gone_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App()
    with listening(app) as server:
        client = connect(server, GET.replace(b"/ ", b"/heedless "))
        time.sleep(0.1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.close()
        wait_for(lambda: app.gone == 1, "all has been sent")
    assert caplog.messages == []


@pytest.mark.parametrize("path", [b" /endless", b" /wait"])
def test_a_server_ends_in_time_while_clients_never_read(
    path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()
    with ExitStack() as stack:
        with listening(app) as server:
            for _ in range(16):
                stack.enter_context(connect(server, GET.replace(b" /", path)))
            time.sleep(0.5)
            started = time.monotonic()
        assert time.monotonic() - started < WAIT_SECONDS
    assert "Traceback" not in caplog.text
    assert "CancelledError" not in caplog.text


def test_an_endless_answer_ends_with_the_server() -> None:
    app = App()
    with listening(app) as server:
        client = connect(server, GET.replace(b" /", b" /live/events"))
        wait_for(lambda: app.waiting == 1, "it is under way")
        started = time.monotonic()
    assert time.monotonic() - started < 2
    with client:
        assert read_to_end(client).endswith(b"0\r\n\r\n"), "and is complete"
