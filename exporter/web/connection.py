"""uvicorn's HTTP protocol with deadlines for headers, bodies and readers, which uvicorn lacks."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from exporter.paths import row_of
from exporter.web.limits import Limits

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Harmless to a client that reads; if the client has gone, the kernel reports it."""
_STALLED_SECONDS = 3.0
"""A client that has read next to nothing for this long gives way to a new one."""

Wait = Literal["header", "body", "read", "busy"]
"""The client's next action: send a header, send a body, read; `busy`: it is the server's turn."""


class Connection(H11Protocol):
    """`check` is called about once a second: requests pay nothing; timers would cost each."""

    cycle: RequestResponseCycle | None  # type: ignore[assignment]

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        limits: Limits,
        admit: Callable[["Connection"], ASGIApp],
    ) -> None:
        """admit: called once the connection is open; returns the app that answers on it."""
        super().__init__(config, server_state, app_state)
        self._limits = limits
        self._admit = admit
        self._num_pauses = 0
        self._waits: tuple[Wait, object] = ("header", None)
        self.waiting_since = self.loop.time()
        """Event-loop time; accurate to about a second for a body, and for a client that reads."""
        self._half_closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app = self._admit(self)

    @property
    def may_give_way(self) -> bool:
        """Whether it is the client's turn; a client that reads slowly has a few seconds."""
        wait, _ = self._awaited()
        stalled = self.loop.time() - self.waiting_since > _STALLED_SECONDS
        return wait in ("header", "body") or (wait == "read" and stalled)

    @property
    def has_unsent(self) -> bool:
        return self.transport.get_write_buffer_size() > 0

    def check(self, now: float) -> Wait | None:
        """End the connection if it has waited too long; returns what it waited for, or None.

        now: time of the event loop.
        """
        awaited = self._awaited()
        if awaited != self._waits:
            self._waits, self.waiting_since = awaited, now
        wait, _ = awaited
        if now - self.waiting_since > self._limits.seconds(wait):
            if wait == "header":
                self.transport.close()  # a client that reads slowly may read the last answer
            else:
                self.drop()
            return wait
        if self._half_closed:
            self._probe()
        return None

    def drop(self) -> None:
        """Close now, without waiting for what has not been sent."""
        self.connections.discard(self)
        self.transport.abort()

    def pause_writing(self) -> None:
        self._num_pauses += 1
        super().pause_writing()

    def shutdown(self) -> None:
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            row = row_of(cycle.scope["path"])
            if row is not None and row.endless:
                cycle.disconnected = True
                cycle.message_event.set()
                self.drop()
                return
        super().shutdown()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """A client that has finished sending may still read: answer its complete requests.

        Returns whether the connection stays open for that; TLS has no half-open connections.
        """
        cycle = self.cycle
        if self.scheme == "https" or cycle is None or cycle.response_complete or cycle.more_body:
            return None
        self._half_closed = True
        self._probe()
        return True

    def on_response_complete(self) -> None:
        # At once, or those that became idle just now would look younger than a new connection.
        self._waits, self.waiting_since = ("header", self.cycle), self.loop.time()
        super().on_response_complete()  # begins with the next request, if that has arrived
        if self._half_closed and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:  # its body is malformed
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.drop()
                return
        super().send_400_response(msg)

    def _should_upgrade(self) -> bool:
        """Called when a request's headers are complete. Nothing is upgraded here.

        If a proxy in front went by the length, and we go by the chunks, what follows may belong to
        another client: RFC 9112, section 6.1, requires closing such a connection.
        """
        names = {name for name, _ in self.headers}
        if b"transfer-encoding" in names and b"content-length" in names:
            self.headers.append((b"connection", b"close"))
        return False

    def _awaited(self) -> tuple[Wait, object]:
        """The client's next action, and a value that changes once it has acted."""
        if self.flow.write_paused or (self.transport.is_closing() and self.has_unsent):
            return "read", self._num_pauses
        cycle = self.cycle
        if cycle is None:
            return "header", None
        if not cycle.more_body:
            return ("header" if cycle.response_complete else "busy"), cycle
        if not cycle.response_complete and (
            self.flow.read_paused or cycle.waiting_for_100_continue
        ):
            return "busy", cycle
        return "body", cycle

    def _probe(self) -> None:
        """Find out whether a client that has finished sending has closed, or still reads.

        Both look alike until something is sent, and requests of a client that has gone must be
        ended.
        """
        cycle = self.cycle
        if cycle is None or cycle.response_started or self.conn.their_http_version != b"1.1":
            return
        if self.conn.our_state is h11.SEND_RESPONSE and not self.transport.is_closing():
            self.transport.write(_CONTINUE)
