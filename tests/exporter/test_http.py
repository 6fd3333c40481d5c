"""Pages over HTTP: inside an app, on a port of their own, and while the app behind is not ready."""

import gzip
import http.client
import socket
import threading
import time
import urllib.error
import urllib.request

import anyio
import httpx
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp

from kvscope.serving.engine import Gate
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.metrics import metrics_app, metrics_router, no_metrics_router
from tests.support.waiting import started_since

pytestmark = pytest.mark.anyio

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
ACCEPT = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*;q=0.1"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Page:
    """An exposition that is the same every time, in two formats."""

    def render(self, accept: str | None = None, detail: object = None) -> tuple[bytes, str]:
        body = 'kvscope_kv_blocks{state="free"} 8\n' * 100
        if "openmetrics" in (accept or ""):
            return f"{body}# EOF\n".encode(), OPENMETRICS
        return body.encode(), TEXT


class Blocked:
    """An exposition that answers once it is released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.rendering = threading.Event()

    def render(self, accept: str | None = None, detail: object = None) -> tuple[bytes, str]:
        self.rendering.set()
        assert self.release.wait(10)
        return b"up 1\n", "text/plain"


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://kvscope")


async def test_the_router_negotiates_format_and_compression() -> None:
    async with client_of(metrics_app(Page())) as client:
        plain = await client.get("/metrics", headers={"Accept-Encoding": "identity"})
        assert plain.headers["content-type"] == TEXT
        assert plain.headers["vary"] == "Accept, Accept-Encoding"
        assert "content-encoding" not in plain.headers
        assert "kvscope_kv_blocks" in plain.text
        zipped = await client.get(
            "/metrics", headers={"Accept": ACCEPT, "Accept-Encoding": "gzip;q=1.0, deflate"}
        )
        assert zipped.headers["content-encoding"] == "gzip"
        assert zipped.headers["content-type"].startswith("application/openmetrics-text")
        assert zipped.text.endswith("# EOF\n")
        assert int(zipped.headers["content-length"]) < len(zipped.text) / 4


@pytest.mark.parametrize(
    ("accept_encoding", "is_zipped"),
    [
        ("gzip", True),
        ("x-gzip", True),
        ("*", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip; q=1.0", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000, *", False),
        ("*;q=0", False),
        ("gzip;q=nonsense", False),
        ("gzip;q=nan", False),
        ("gzipped", False),
    ],
)
async def test_a_page_is_zipped_only_for_those_who_take_gzip(
    accept_encoding: str, is_zipped: bool
) -> None:
    async with client_of(metrics_app(Page())) as client:
        page = await client.get("/metrics", headers={"Accept-Encoding": accept_encoding})
    assert ("content-encoding" in page.headers) == is_zipped
    assert "kvscope_kv_blocks" in page.text


async def test_a_slow_page_does_not_hold_the_event_loop() -> None:
    blocked = Blocked()
    app = FastAPI()
    app.include_router(metrics_router(blocked))

    @app.get("/health")
    async def health() -> str:
        blocked.release.set()  # answered while the page is being rendered
        return "ok"

    async with client_of(app) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.get, "/metrics")
        await anyio.to_thread.run_sync(blocked.rendering.wait, 10)
        assert (await client.get("/health")).status_code == 200


async def test_a_server_without_a_page_says_where_metrics_are() -> None:
    app = FastAPI()
    app.include_router(no_metrics_router("started with --no-exporter"))
    async with client_of(app) as client:
        answer = await client.get("/metrics")
    assert (answer.status_code, answer.text) == (404, "started with --no-exporter\n")


def test_a_port_of_its_own_serves_and_closes() -> None:
    before = threading.enumerate()
    with HttpServer(metrics_app(Page()), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}/metrics"
        request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=5) as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            assert b"kvscope_kv_blocks" in gzip.decompress(response.read())
        head = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(head, timeout=5) as response:
            assert int(response.headers["Content-Length"]) == len(Page().render()[0])
            assert response.read() == b""
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=5)
        caught.value.close()
    assert "kvscope-http" not in started_since(before)
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(url, timeout=5)


def test_a_port_in_use_is_an_error_at_once() -> None:
    with (
        HttpServer(metrics_app(Page()), "127.0.0.1", 0) as server,
        pytest.raises(OSError, match="in use"),
    ):
        HttpServer(metrics_app(Page()), "127.0.0.1", server.port)


def test_a_server_stops_at_once_and_while_a_page_is_rendered() -> None:
    blocked = Blocked()
    HttpServer(metrics_app(blocked), "127.0.0.1", 0).stop()
    server = HttpServer(metrics_app(blocked), "127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as scraper:
        scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        assert blocked.rendering.wait(5)
        threading.Timer(0.2, blocked.release.set).start()
        server.stop()


def test_a_connection_is_kept_for_the_next_scrape() -> None:
    with (
        HttpServer(metrics_app(Page()), "127.0.0.1", 0) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as client,
    ):
        for _ in range(2):
            client.sendall(b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")


async def test_a_gate_refuses_until_it_is_opened() -> None:
    gate = Gate()
    app = FastAPI()
    app.include_router(metrics_router(Page()))
    app.mount("/", gate)
    async with client_of(app) as client:
        assert (await client.get("/metrics")).status_code == 200
        health = await client.get("/health")
        assert (health.status_code, health.json()) == (503, {"status": "loading"})
        refused = await client.post("/v1/completions", json={})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "5"
        error = refused.json()["error"]
        assert error["type"] == "service_unavailable"
        assert "still loading" in error["message"]
        inner = FastAPI()

        @inner.get("/health")
        async def healthy() -> str:
            return "ok"

        gate.open(inner)
        assert (await client.get("/health")).json() == "ok"
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/v1/models")).status_code == 404


@pytest.mark.timed
def test_an_answer_on_a_kept_connection_does_not_wait_for_an_acknowledgement() -> None:
    """Header and body are two packets; with Nagle's algorithm the second one takes 40 ms."""
    with HttpServer(metrics_app(Page()), "127.0.0.1", 0) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        times = []
        for _ in range(20):
            began = time.perf_counter()
            connection.request("GET", "/metrics")
            assert connection.getresponse().read()
            times.append(time.perf_counter() - began)
        connection.close()
    assert sorted(times)[len(times) // 2] < 0.03
