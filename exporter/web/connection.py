"""One client's connection: what it waits for, since when, and when that has been long enough."""

import asyncio
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from exporter.web.limits import Limits

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Harmless to a client that reads; to one that has gone it makes the kernel say so."""
_STALLED_SECONDS = 3.0
"""A client that has taken next to nothing for so long gives way to another one."""


class Connection(H11Protocol):
    """uvicorn's protocol with time limits. `check` is called about once a second.

    Being looked at costs a request nothing, where timers would cost each of its steps.
    """

    transport: "_CountedTransport"
    cycle: RequestResponseCycle | None  # type: ignore[assignment]

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        limits: Limits,
        app: ASGIApp,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.app = app
        self._limits = limits
        self._waits_for: tuple[str, object] = ("busy", None)
        self._since = self.loop.time()
        self._sent = 0
        self._sent_since = self._since
        self._half_closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_CountedTransport(transport))
        self._waits_for = self._awaited()

    @property
    def is_waiting(self) -> bool:
        """Whether it is the client's turn, to send or to read."""
        return self._awaited()[0] != "busy" or self._is_stalled

    @property
    def waiting_since(self) -> float:
        """Time of the event loop, to about a second."""
        return self._sent_since if self._is_stalled else self._since

    @property
    def _is_stalled(self) -> bool:
        return self.unsent > 0 and self.loop.time() - self._sent_since > _STALLED_SECONDS

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken yet."""
        return self.transport.get_write_buffer_size()

    def check(self, now: float) -> str | None:
        """End it if a limit is over; the limit's name, or None.

        now: time of the event loop.
        """
        if self._has_stopped_reading(now):
            self.drop()
            return "write"
        awaited = self._awaited()
        if awaited != self._waits_for:
            self._waits_for, self._since = awaited, now
        waits = now - self._since
        limits = self._limits
        match awaited[0]:
            case "header" if waits > limits.header_seconds:
                self.transport.close()
                return "header"
            case "body" if waits > limits.body_seconds:
                self.drop()
                return "body"
            case "rest" if waits > limits.rest_seconds:
                self.transport.close()
                return "body"
        if self._half_closed:
            self._probe()
        return None

    def drop(self) -> None:
        """Close now, without waiting for what has not been sent."""
        self.connections.discard(self)
        self.transport.abort()

    def shutdown(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """A client that sends no more may still read: answer what it has asked completely.

        Returns whether the connection stays open for that; TLS knows no half of a connection.
        """
        cycle = self.cycle
        if self.scheme == "https" or cycle is None or cycle.response_complete or cycle.more_body:
            return None
        self._half_closed = True
        self._probe()
        return True

    def on_response_complete(self) -> None:
        super().on_response_complete()  # begins with the next request, if that has arrived
        if self._half_closed and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()

    def _should_upgrade(self) -> bool:
        """Called when the headers of a request are there. Nothing is upgraded here.

        Where a proxy before us went by the length, and we go by the chunks, what follows may be
        of somebody else: RFC 9112, section 6.1, has such a connection closed.
        """
        names = {name for name, _ in self.headers}
        if b"transfer-encoding" in names and b"content-length" in names:
            self.headers.append((b"connection", b"close"))
        return False

    def send_400_response(self, msg: str) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:  # its body is malformed
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.drop()
                return
        super().send_400_response(msg)

    def _awaited(self) -> tuple[str, object]:
        """What the client is to send, and of which request; `busy`: it is our turn."""
        cycle = self.cycle
        if cycle is None:
            return "header", None
        if cycle.response_complete:
            return ("rest" if cycle.more_body else "header"), cycle
        if cycle.more_body and not (self.flow.read_paused or cycle.waiting_for_100_continue):
            return "body", cycle
        return "busy", cycle

    def _has_stopped_reading(self, now: float) -> bool:
        sent = self.transport.written - self.unsent
        if self.unsent == 0 or sent - self._sent >= self._limits.write_bytes:
            self._sent, self._sent_since = sent, now
            return False
        return now - self._sent_since > self._limits.write_seconds

    def _probe(self) -> None:
        """Find out whether a client that sends no more has closed, or still reads.

        Both look alike until something is sent to it, and a request of a client that has gone is
        to be ended.
        """
        cycle = self.cycle
        if cycle is None or cycle.response_started or self.conn.their_http_version != b"1.1":
            return
        if self.conn.our_state is h11.SEND_RESPONSE:
            self.transport.write(_CONTINUE)


class _CountedTransport(asyncio.Transport):
    """Counts what is written, so that with the buffer's size it is known what has been sent."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self.written = 0
        """Bytes, those in the buffer included."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closing():  # nobody would get it, and asyncio logs each such attempt
            return
        self.written += len(data)
        self._transport.write(data)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()
