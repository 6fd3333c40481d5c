"""Requests to the API: counted by route and class of status, without a label from a client."""

from contextlib import suppress

import pytest
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvscope_exporter.web.requests import CountedRequests, RequestCounts
from tests.exporter.page import FIXED_CLOCK

pytestmark = pytest.mark.anyio

Series = dict[tuple[str, str, str], float]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def answering(status: int) -> ASGIApp:
    return JSONResponse({}, status)


async def silent(scope: Scope, receive: Receive, send: Send) -> None:
    """Its client has gone: there is no one to answer."""


async def failing(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("a bug")


async def asked(counts: RequestCounts, app: ASGIApp, method: str, path: str) -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pass

    scope = {"type": "http", "method": method, "path": path, "headers": []}
    with suppress(RuntimeError):  # of an app that fails; the server answers for it
        await CountedRequests(app, counts)(scope, receive, send)


def requests_of(counts: RequestCounts) -> Series:
    (family,) = (f for f in counts.collect() if f.name == "http_requests")
    return {
        (s.labels["handler"], s.labels["method"], s.labels["status"]): s.value
        for s in family.samples
    }


def moved(counts: RequestCounts) -> Series:
    return {series: number for series, number in requests_of(counts).items() if number}


@pytest.mark.parametrize(
    ("method", "path", "app", "series"),
    [
        ("POST", "/v1/completions", answering(200), ("/v1/completions", "POST", "2xx")),
        ("POST", "/v1/chat/completions", answering(429), ("/v1/chat/completions", "POST", "4xx")),
        ("GET", "/v1/models", answering(503), ("/v1/models", "GET", "5xx")),
        ("POST", "/v1/completions", failing, ("/v1/completions", "POST", "5xx")),
        ("POST", "/v1/completions", silent, ("/v1/completions", "POST", "4xx")),
        ("GET", "/v1/completions", answering(405), ("none", "none", "4xx")),
        ("BREW", "/v1/models", answering(405), ("none", "none", "4xx")),
        ("GET", "/../etc/passwd", answering(404), ("none", "none", "4xx")),
        ("GET", "/v1/models/", answering(307), ("none", "none", "3xx")),
    ],
)
async def test_a_request_counts_for_its_route_and_status(
    method: str, path: str, app: ASGIApp, series: tuple[str, str, str]
) -> None:
    counts = RequestCounts(FIXED_CLOCK)
    await asked(counts, app, method, path)
    assert moved(counts) == {series: 1}


@pytest.mark.parametrize("path", ["/health", "/metrics", "/metrics/compact", "/api/advice"])
async def test_probes_scrapes_and_operators_are_not_traffic(path: str) -> None:
    counts = RequestCounts(FIXED_CLOCK)
    await asked(counts, answering(503), "GET", path)
    assert moved(counts) == {}


async def test_answers_are_timed_by_route_and_everything_begins_at_0() -> None:
    counts = RequestCounts(FIXED_CLOCK)
    before = requests_of(counts)
    assert set(before.values()) == {0}
    for _ in range(2):
        await asked(counts, answering(200), "POST", "/v1/completions")
    await asked(counts, answering(404), "GET", "/nowhere")
    assert requests_of(counts).keys() == before.keys(), "no series more"
    (timed,) = (f for f in counts.collect() if f.name == "http_request_duration_seconds")
    values = {(s.name, s.labels["handler"]): s.value for s in timed.samples}
    assert values["http_request_duration_seconds_count", "/v1/completions"] == 2
    assert values["http_request_duration_seconds_sum", "/v1/completions"] > 0
    assert values["http_request_duration_seconds_count", "/v1/models"] == 0
