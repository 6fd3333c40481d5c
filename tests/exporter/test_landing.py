"""`GET /`: what is watched, in which state, and links that lead somewhere; no script can run."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from kvscope_events.events import PoolCreated
from kvscope_exporter.configuration import ServerConfig
from kvscope_exporter.sidecar.sidecar import Sidecar
from kvscope_exporter.web.access import Access, AccessConfig, Credentials
from kvscope_exporter.web.http_server import HttpServer
from kvscope_exporter.web.landing import ListedServer, landing_router
from kvscope_exporter.web.metrics import bare_app
from kvscope_exporter.web.sidecar_app import sidecar_app
from tests.exporter.page import make_exporter, put, step


class Reader(HTMLParser):
    """Collects tags, links and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name == "href" and value is not None]

    def handle_data(self, data: str) -> None:
        self.text += data + " "


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    tmp_path.chmod(0o700)
    made = Sidecar(
        [
            ServerConfig(name="blue", events=(f"ipc://{tmp_path}/*",)),
            ServerConfig(name="10.0.0.7:8000", url="http://127.0.0.1:9"),
        ]
    )
    made.start()
    yield made
    made.stop()


def test_it_lists_the_servers_and_every_link_answers(sidecar: Sidecar) -> None:
    with HttpServer(sidecar_app(sidecar), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}"
        answer = httpx.get(f"{url}/")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        page = Reader(answer.text)
        assert re.search(r"blue\s+expected", page.text), "and no verdict: nothing is known"
        assert re.search(r"10\.0\.0\.7:8000\s+expected", page.text)
        assert {"/metrics", "/targets", "/health", "/metrics/compact"} <= set(page.links)
        assert "/scrape?target=10.0.0.7%3A8000" in page.links
        for link in page.links:
            status = httpx.get(f"{url}{link}").status_code
            assert status == 200 or (link == "/metrics/compact" and status == 400), link
        blue = sidecar.server("blue")
        assert blue is not None
        blue.presence.retire()
        assert re.search(r"blue\s+retired", Reader(httpx.get(f"{url}/").text).text)


def test_nothing_in_it_can_run_or_be_framed() -> None:
    exporter, _ = make_exporter()
    name = "<script>alert(1)</script>\" onload='x"
    app = bare_app("x")
    app.include_router(
        landing_router(
            "a <b>", lambda: [ListedServer(name, exporter.presence, exporter)], has_targets=True
        )
    )
    with HttpServer(app, "127.0.0.1", 0) as server:
        answer = httpx.get(f"http://127.0.0.1:{server.port}/")
    page = Reader(answer.text)
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text, "as text"
    assert all(re.fullmatch(r"[/?=%A-Za-z0-9._-]+", link) for link in page.links)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_it_is_behind_the_door_of_the_pages(sidecar: Sidecar) -> None:
    config = AccessConfig(pages=Credentials(["secret"]))
    with HttpServer(Access(sidecar_app(sidecar), config), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}/"
        assert httpx.get(url).status_code == 401
        key = {"Authorization": "Bearer secret"}
        assert httpx.get(url, headers=key).status_code == 200
        assert httpx.head(url, headers=key).status_code == 200


def test_a_row_has_the_pool_the_queue_and_the_verdict() -> None:
    exporter, subscription = make_exporter()
    app = bare_app("x")
    app.include_router(
        landing_router(
            "x", lambda: [ListedServer("m", exporter.presence, exporter)], has_targets=False
        )
    )
    with HttpServer(app, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}/"
        cells = re.findall("<td>(.*?)</td>", httpx.get(url).text)
        assert cells[2:6] == ["", "0", "0", "nothing"], "there is no pool yet"
        put(subscription, 0, 0, PoolCreated(9, 16, 0), step(running=3, waiting=2))
        cells = re.findall("<td>(.*?)</td>", httpx.get(url).text)
        assert cells[2:5] == ["0%", "3", "2"]
        assert re.match(r"no step has ended for .*<br><b>Do:</b> ", cells[5])
