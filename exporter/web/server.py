"""uvicorn with deadlines for every connection, room for new ones, and a timely shutdown."""

import asyncio
import heapq
import math
import socket
import ssl
import sys
import time
from operator import attrgetter

import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from exporter.faults import Faults
from exporter.web.connection import Connection
from exporter.web.limits import Limits
from exporter.web.quiet import quieten
from exporter.web.refusal import Crowded

BACKLOG = 2048
"""Connections that the kernel holds until they are accepted."""
BURST_SHARE = 16
"""That fraction of the room (1/16) is accepted in a row; then the open ones get their turn on the
event loop, so that a new one is read before others arrive and make it the oldest that waits."""
MAX_HEADER_BYTES = 64 << 10
SHED_AT_ONCE = 16
"""Idle connections closed at once, since finding the oldest means looking at all of them."""
KEPT_SHARE = 8
"""One in eight connections is for /health and /metrics alone."""
STALLED_CLIENT_SECONDS = 0.5
"""Time for clients to read the rest once requests have been ended; then they are cut off."""
LAST_SECONDS = 2.0
"""Time after that; then requests that continue without their client are cancelled."""
TICKS_PER_CHECK = 10
"""uvicorn's server ticks ten times a second."""
_PROBLEMS = {
    "crowded": "too many connections: idle ones are closed",
    "header": "clients that sent no complete header in time",
    "body": "clients that sent no complete body in time",
    "read": "clients that stopped reading",
}


class WebServer(uvicorn.Server):
    """Serves on sockets that are already bound."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        name: str,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        lifespan: bool = False,
        stop_seconds: float = 0.0,
    ) -> None:
        """name: the port's, for log lines. stop_seconds: for requests in progress at the end."""
        quieten()
        self._limits = limits or Limits()
        super().__init__(
            uvicorn.Config(
                app,
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # any client could claim another's address
                lifespan="on" if lifespan else "off",
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_keep_alive=math.ceil(self._limits.header_seconds),
                timeout_graceful_shutdown=math.ceil(stop_seconds + LAST_SECONDS),
            )
        )
        self.config.load()
        self._tls = tls
        self._stop_seconds = stop_seconds
        self._crowded = Crowded(app)
        self._room = 0
        self.faults: Faults[str] = Faults(name, _PROBLEMS, time.monotonic_ns)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets, "bind before"
        # anyio loads a part of itself with its first thread: too late once files have run out.
        await run_in_threadpool(int)
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self._room = self._limits.room
        # uvicorn also counts requests of connections that have just been closed.
        self.config.limit_concurrency = 2 * self._room
        for_tls = self._limits.header_seconds if self._tls is not None else None
        self.servers = []
        for listener in sockets:
            # asyncio accepts as many in a row as its backlog holds.
            server = await asyncio.get_running_loop().create_server(
                self._connection,
                sock=listener,
                backlog=max(1, self._room // BURST_SHARE),
                ssl=self._tls,
                ssl_handshake_timeout=for_tls,
                ssl_shutdown_timeout=for_tls,
            )
            listener.listen(BACKLOG)
            self.servers.append(server)
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_CHECK == 0:
            now = asyncio.get_running_loop().time()
            for connection in self._connections():
                overdue = connection.check(now)
                if overdue is not None:
                    self.faults.count(overdue, _PROBLEMS[overdue])
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        cut = loop.call_later(self._stop_seconds + STALLED_CLIENT_SECONDS, self._cut)
        try:
            await super().shutdown(sockets)
        finally:
            cut.cancel()

    def set_stop_seconds(self, seconds: float) -> None:
        """Change the time that requests in progress may still take at the end."""
        self._stop_seconds = seconds
        self.config.timeout_graceful_shutdown = math.ceil(seconds + LAST_SECONDS)

    def _connection(self) -> Connection:
        state = self.lifespan.state
        return Connection(self.config, self.server_state, state, self._limits, self._admit)

    def _connections(self) -> list[Connection]:
        return list(self.server_state.connections)  # type: ignore[arg-type]

    @property
    def _is_crowded(self) -> bool:
        return len(self.server_state.connections) > self._room - self._room // KEPT_SHARE

    def _admit(self, new: Connection) -> ASGIApp:
        """The app for a new connection; connections that wait for their clients may be closed."""
        if self._is_crowded:
            self.faults.count("crowded", _PROBLEMS["crowded"])
            waiting = [c for c in self._connections() if c is not new and c.may_give_way]
            number = min(SHED_AT_ONCE, self._room // KEPT_SHARE or 1)
            for oldest in heapq.nsmallest(number, waiting, key=attrgetter("waiting_since")):
                oldest.drop()
        return self._crowded if self._is_crowded else self.config.loaded_app

    def _cut(self) -> None:
        """Requests notice that their clients are gone, and end by themselves."""
        for connection in self._connections():
            if connection.may_give_way or connection.has_unsent:
                connection.drop()
