"""Accepts a listener's connections, and makes room for new ones at the cost of idle ones.

asyncio's own servers log and reschedule an accept that failed as often as their backlog is long,
and count no TLS handshake as a connection.
"""

import asyncio
import errno
import heapq
import socket
import ssl
from collections.abc import Callable
from functools import partial
from operator import itemgetter

from exporter.faults import Faults
from exporter.web.connection import Connection
from exporter.web.limits import Limits

BURST = 64
"""Connections accepted before others get their turn on the event loop."""
RETRY_SECONDS = 0.2
"""After an accept for which there were no files left."""
SHED_AT_ONCE = 16
"""Idle connections closed together, since finding the oldest takes a look at all of them."""
KEPT_SHARE = 8
"""One in eight connections is for /health and /metrics alone."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Fault = str
FAULTS = ("accept", "crowded", "header", "body", "write")
"""Kinds of faults of a listener: an accept that failed, more clients than there is room for, and
clients that were too slow."""


class Acceptor:
    """Listens from construction until `close`; on the running event loop."""

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[bool], Connection],
        connections: set[Connection],
        limits: Limits,
        tls: ssl.SSLContext | None,
        faults: Faults[Fault],
    ) -> None:
        """make: a connection's protocol; True where there is room left only for /health.

        connections: those that are open; kept up to date by themselves.
        """
        self._listener = listener
        self._make = make
        self._connections = connections
        self._limits = limits
        self._room = limits.room
        self._tls = tls
        self._faults = faults
        self._handshakes: dict[asyncio.Task[None], float] = {}
        """Those under way, each since when; in this order."""
        self._retry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more. The socket itself belongs to the caller."""
        if self._retry is not None:
            self._retry.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
        for handshake in list(self._handshakes):
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Returns once no handshake is under way."""
        if self._handshakes:
            await asyncio.wait(self._handshakes)

    def _accept(self) -> None:
        for _ in range(BURST):
            if self._is_crowded and self._handshakes and self._tls is None:
                return  # in a moment these are connections, of which some can be closed
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._wait_for_files(error)
                    return
                continue  # this client has gone already
            self._admit(accepted)

    def _wait_for_files(self, error: OSError) -> None:
        self._faults.count("accept", f"cannot accept connections: {error.strerror}")
        self._shed()
        self._loop.remove_reader(self._listener.fileno())
        self._retry = self._loop.call_later(RETRY_SECONDS, self._resume)

    def _resume(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _admit(self, accepted: socket.socket) -> None:
        if self._is_crowded:
            self._faults.count("crowded", f"{self._taken} connections: idle ones are closed")
            self._shed()
        if self._taken >= self._room:
            accepted.close()
            return
        accepted.setblocking(False)
        # asyncio does it only for sockets that name their protocol; ours would wait 40 ms between
        # the header of an answer and its body.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handshake = self._loop.create_task(self._connect(accepted, self._is_crowded))
        self._handshakes[handshake] = self._loop.time()
        handshake.add_done_callback(partial(self._forget, accepted))

    @property
    def _taken(self) -> int:
        return len(self._connections) + len(self._handshakes)

    @property
    def _is_crowded(self) -> bool:
        return self._taken >= self._room - self._room // KEPT_SHARE

    def _shed(self) -> None:
        """Close the connections that have waited for their clients the longest."""
        waiting: list[tuple[float, Callable[[], None]]] = [
            (connection.waiting_since, connection.drop)
            for connection in self._connections
            if connection.is_waiting
        ]
        waiting += [
            (since, partial(self._drop_handshake, handshake))
            for handshake, since in self._handshakes.items()
        ]
        number = min(SHED_AT_ONCE, self._room // KEPT_SHARE or 1)
        for _, drop in heapq.nsmallest(number, waiting, key=itemgetter(0)):
            drop()

    def _forget(self, accepted: socket.socket, handshake: asyncio.Task[None]) -> None:
        self._handshakes.pop(handshake, None)
        if handshake.cancelled():  # maybe before it began, when the socket was nobody's yet
            accepted.close()

    def _drop_handshake(self, handshake: asyncio.Task[None]) -> None:
        del self._handshakes[handshake]
        handshake.cancel()

    async def _connect(self, accepted: socket.socket, is_crowded: bool) -> None:
        seconds = self._limits.header_seconds if self._tls is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(is_crowded),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
        except OSError:  # no handshake, or not in time; ssl.SSLError is one
            self._faults.count("header", "clients without a TLS handshake")
