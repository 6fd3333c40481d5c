"""Middleware for what uvicorn does not limit: bodies that never end, and too many requests at once.

Connections without a request cost a file each and nothing else: closing them is for a proxy.
"""

import asyncio

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvscope_exporter.paths import row_of
from kvscope_exporter.web.limits import Limits
from kvscope_exporter.web.refusal import Refused

KEPT_SHARE = 8
"""One in eight requests is for /health and /metrics alone."""
RETRY_AFTER_SECONDS = 1
_GONE: Message = {"type": "http.disconnect"}


class Guard:
    """For one event loop."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._room = limits.max_requests - max(1, limits.max_requests // KEPT_SHARE)
        self._num_requests = 0
        self.stopping = asyncio.Event()
        """Once it is set, responses without an end are cut off."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except Refused as refused:
            refused.headers["Connection"] = "close"
            await refused.response(scope, receive, send)
            return
        row = row_of(scope["path"])
        exchange = _Exchange(receive, send, self._limits.body_seconds)
        if row is not None and row.endless:
            exchange.stopping = self.stopping
        self._num_requests += 1
        try:
            await self._app(scope, exchange.receive, exchange.send)
            await exchange.end()
        finally:
            self._num_requests -= 1

    def _check(self, scope: Scope) -> None:
        """Raises Refused."""
        names = {name for name, _ in scope["headers"]}
        if b"transfer-encoding" in names and b"content-length" in names:
            # A proxy in front that goes by the length would take the rest for another client's:
            # RFC 9112, section 6.1.
            raise Refused(400, "a request has Transfer-Encoding or Content-Length, not both")
        row = row_of(scope["path"])
        room = self._limits.max_requests if row is not None and row.keeps_room else self._room
        if self._num_requests >= room:
            headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            raise Refused(503, f"too many requests: try again in {RETRY_AFTER_SECONDS} s", headers)


class _Exchange:
    """One request, whose client counts as gone when its body is late or the server stops."""

    def __init__(self, receive: Receive, send: Send, body_seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._deadline = asyncio.get_running_loop().time() + body_seconds
        self._has_more = True
        self._is_open = False
        self._closes = False
        self.stopping: asyncio.Event | None = None
        """Ends the response; None: it has an end of its own."""

    async def receive(self) -> Message:
        if not self._has_more:
            return await self._until_stopped()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self._closes = True
            return _GONE
        self._has_more = message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._is_open = True
            if self._closes:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        elif not message.get("more_body", False):
            self._is_open = False
        try:
            await self._send(message)
        except h11.LocalProtocolError:
            if not self._has_more:
                raise  # else uvicorn has answered a malformed body itself

    async def end(self) -> None:
        """Complete a response that was cut off."""
        if self._is_open and self.stopping is not None and self.stopping.is_set():
            await self._send({"type": "http.response.body", "body": b""})

    async def _until_stopped(self) -> Message:
        if self.stopping is None:
            return await self._receive()
        received = asyncio.ensure_future(self._receive())
        stopped = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({received, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return received.result() if received.done() else _GONE
        finally:
            received.cancel()
            stopped.cancel()
