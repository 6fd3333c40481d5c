"""Counts and times the requests to the API, under prometheus-fastapi-instrumentator's names.

Unlike there, a method or path without a route is not a label, and series begin at 0.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import Metric as Family
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvscope_exporter.catalogue.http import HANDLERS, NO_HANDLER
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.families import Families
from kvscope_exporter.paths import row_of

_GONE = 499
"""Status of a client that left before its answer began."""
_FAILED = 500

_NONE = (NO_HANDLER, NO_HANDLER)


class _AnsweredRequests(NamedTuple):
    requests: int
    seconds: float


class RequestCounts:
    """A collector. Counted on one event loop, read on any thread."""

    def __init__(self, clock: Clock) -> None:
        self._families = Families({}, clock)
        routes = list(HANDLERS.items())
        expected = [(*route, status) for route in routes for status in ("2xx", "4xx", "5xx")]
        self._requests: dict[tuple[str, ...], int] = dict.fromkeys([*expected, (*_NONE, "4xx")], 0)
        self._answered: dict[tuple[str, ...], _AnsweredRequests] = dict.fromkeys(
            routes, _AnsweredRequests(0, 0.0)
        )

    def collect(self) -> Iterator[Family]:
        yield self._families.table("http_requests_total", self._requests.copy())
        yield self._families.summaries("http_request_duration_seconds", self._answered.copy())

    def count(self, route: tuple[str, str], status: int, seconds: float) -> None:
        """One request was answered, after this many seconds."""
        series = (*route, f"{status // 100}xx")
        self._requests[series] = self._requests.get(series, 0) + 1
        before = self._answered.get(route)
        if before is not None:
            self._answered[route] = _AnsweredRequests(before.requests + 1, before.seconds + seconds)


class CountedRequests:
    """ASGI middleware around everything that answers on a port."""

    def __init__(self, app: ASGIApp, counts: RequestCounts) -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        row = row_of(path)
        if scope["type"] != "http" or (row is not None and row.counted is None):
            await self._app(scope, receive, send)
            return
        status = _GONE
        began = time.monotonic()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:
            status = _FAILED
            raise
        finally:
            method = scope["method"]
            route = (path, method) if row is not None and row.counted == method else _NONE
            self._counts.count(route, status, time.monotonic() - began)
