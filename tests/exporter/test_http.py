"""`/metrics` over HTTP: inside an application and on a port of its own."""

import gzip
import threading
import urllib.error
import urllib.request

import anyio
import httpx
import pytest
from fastapi import FastAPI

from exporter.http import metrics_router, serve_metrics
from tests.exporter.scenario import play
from tests.exporter.support import make_exporter

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Blocked:
    """An exposition that answers only when it is told to."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.rendering = threading.Event()

    def render(self, accept: str | None = None) -> tuple[bytes, str]:
        self.rendering.set()
        assert self.release.wait(10)
        return b"up 1\n", "text/plain"


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://kvscope")


async def test_the_router_negotiates_format_and_compression() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    app = FastAPI()
    app.include_router(metrics_router(exporter))
    async with client_of(app) as client:
        plain = await client.get("/metrics", headers={"Accept-Encoding": "identity"})
        assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "content-encoding" not in plain.headers
        assert "kvscope_kv_blocks" in plain.text
        accept = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*;q=0.1"
        zipped = await client.get(
            "/metrics", headers={"Accept": accept, "Accept-Encoding": "gzip;q=1.0, deflate"}
        )
        assert zipped.headers["content-encoding"] == "gzip"
        assert zipped.headers["content-type"].startswith("application/openmetrics-text")
        assert zipped.text.endswith("# EOF\n")
        assert int(zipped.headers["content-length"]) < len(zipped.text) / 4


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


def test_a_port_of_its_own_serves_and_closes() -> None:
    exporter, subscription = make_exporter()
    play(subscription)
    with serve_metrics(exporter, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}/metrics"
        request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=5) as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            assert b"kvscope_kv_blocks" in gzip.decompress(response.read())
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=5)
        caught.value.close()
    assert "kvscope-metrics" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(url, timeout=5)


def test_a_port_in_use_is_an_error_at_once() -> None:
    exporter, _ = make_exporter()
    with (
        serve_metrics(exporter, "127.0.0.1", 0) as server,
        pytest.raises(OSError, match="in use"),
    ):
        serve_metrics(exporter, "127.0.0.1", server.port)
