"""The sidecar's app: targets for Prometheus, a page for each, its own state."""

from typing import Any

import httpx
import pytest

from kvscope_exporter.answers.question import Question
from kvscope_exporter.fetch.address import is_address
from kvscope_exporter.targets.reply import Reply
from kvscope_exporter.web.metrics import Exposition
from kvscope_exporter.web.sidecar_app import sidecar_app

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Page:
    def __init__(self, text: str) -> None:
        self._text = text

    def render(self, accept: str | None = None, detail: object = None) -> tuple[bytes, str]:
        return self._text.encode(), "text/plain; version=0.0.4; charset=utf-8"

    def answer(self, question: Question[Any]) -> Reply:
        return Reply(question=question.name, engines=[])


class Watched:
    """`Pages` of two servers."""

    def __init__(self) -> None:
        self.own: Exposition = Page("own 1\n")
        self._servers = {"llama": Page("llama 1\n"), "10.0.0.7:8000": Page("qwen 1\n")}

    def names(self) -> list[str]:
        return sorted(self._servers)

    def labels(self, name: str) -> dict[str, str]:
        return {"team": "search"} if name == "llama" else {}

    def server(self, name: str) -> Page | None:
        return self._servers.get(name)


def client(address: str | None = None, host: str = "sidecar:9400") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(sidecar_app(Watched(), address))
    return httpx.AsyncClient(transport=transport, base_url="http://a", headers={"Host": host})


async def test_each_server_has_a_page_and_the_sidecar_its_own() -> None:
    async with client() as http:
        assert (await http.get("/metrics")).text == "own 1\n"
        assert (await http.get("/scrape", params={"target": "llama"})).text == "llama 1\n"
        qwen = await http.get("/scrape", params={"target": "10.0.0.7:8000"})
        assert qwen.text == "qwen 1\n"
        assert qwen.headers["vary"] == "Accept, Accept-Encoding"
        assert (await http.head("/scrape", params={"target": "llama"})).status_code == 200
        assert (await http.get("/health")).json() == {"status": "ok"}


async def test_an_unknown_server_is_404_and_a_missing_name_400_with_the_known_ones() -> None:
    async with client() as http:
        unknown = await http.get("/scrape", params={"target": "nobody"})
        missing = await http.get("/scrape")
    assert unknown.status_code == 404
    assert "'nobody'" in unknown.text
    assert missing.status_code == 400
    for answer in (unknown, missing):
        assert "10.0.0.7:8000, llama" in answer.text


async def test_targets_are_named_as_the_scraper_reached_us() -> None:
    async with client() as http:
        listed = (await http.get("/targets")).json()
    assert listed == [
        {
            "targets": ["sidecar:9400"],
            "labels": {
                "__metrics_path__": "/scrape",
                "__param_target": name,
                "instance": name,
                **({"team": "search"} if name == "llama" else {}),
            },
        }
        for name in ("10.0.0.7:8000", "llama")
    ]


async def test_a_configured_address_wins_over_the_host_header() -> None:
    async with client(address="metrics.example:80", host="inner:9400") as http:
        listed = (await http.get("/targets")).json()
    assert {entry["targets"][0] for entry in listed} == {"metrics.example:80"}


async def test_a_host_header_that_is_not_an_address_is_refused() -> None:
    async with client(host="a/b@evil") as http:
        answer = await http.get("/targets")
    assert answer.status_code == 400
    assert "a/b@evil" in answer.text


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("localhost", True),
        ("127.0.0.1:9400", True),
        ("[::1]:9400", True),
        ("[::1]", True),
        ("a-b.c_d:65535", True),
        ("a:65536", False),
        ("a:0", False),
        ("a:b", False),
        ("::1", False),
        ("", False),
        ("a b", False),
        ("user@a:1", False),
        ("a:1\n", False),
    ],
)
def test_what_counts_as_an_address(text: str, good: bool) -> None:
    assert is_address(text) == good
