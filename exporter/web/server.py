"""uvicorn with bounds: time limits for every connection, room for new ones, an end in time."""

import asyncio
import math
import socket
import ssl
import sys
import time

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from exporter.faults import Faults
from exporter.web.acceptor import FAULTS, Acceptor
from exporter.web.connection import Connection
from exporter.web.crowd import Crowded
from exporter.web.limits import Limits
from exporter.web.quiet import quieten, quieten_uvicorn

STALLED_CLIENT_SECONDS = 0.5
"""Time for clients to read the rest once requests have been ended; who has not is cut off."""
LAST_SECONDS = 2.0
"""After the end of requests; then also those are cancelled that go on without their client."""
TICKS_PER_CHECK = 10
"""uvicorn's server ticks ten times a second."""
_PROBLEMS = {
    "header": "clients that sent no complete request in time",
    "body": "clients that sent no complete body in time",
    "write": "clients that stopped reading",
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
        """name: of the port, in log lines. stop_seconds: for requests under way at the end."""
        quieten_uvicorn()
        self._limits = limits or Limits()
        super().__init__(
            uvicorn.Config(
                app,
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # any client could name itself another's address
                lifespan="on" if lifespan else "off",
                timeout_keep_alive=math.ceil(self._limits.header_seconds),
                timeout_graceful_shutdown=math.ceil(stop_seconds + LAST_SECONDS),
            )
        )
        self.config.load()
        self._tls = tls
        self._stop_seconds = stop_seconds
        self._crowded = Crowded(app)
        self.faults: Faults[str] = Faults(name, FAULTS, time.monotonic_ns)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets, "bind before"
        loop = asyncio.get_running_loop()
        quieten(loop)
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self.servers = [self._acceptor(listener) for listener in sockets]  # type: ignore[misc]
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_CHECK == 0:
            self._check_connections()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        cut = loop.call_later(self._stop_seconds + STALLED_CLIENT_SECONDS, self._cut)
        try:
            await super().shutdown(sockets)
        finally:
            cut.cancel()

    def set_stop_seconds(self, seconds: float) -> None:
        """Change the time that requests under way may still take at the end."""
        self._stop_seconds = seconds
        self.config.timeout_graceful_shutdown = math.ceil(seconds + LAST_SECONDS)

    def _acceptor(self, listener: socket.socket) -> Acceptor:
        connections: set[Connection] = self.server_state.connections  # type: ignore[assignment]
        return Acceptor(
            listener, self._connection, connections, self._limits, self._tls, self.faults
        )

    def _connection(self, is_crowded: bool) -> Connection:
        app = self._crowded if is_crowded else self.config.loaded_app
        return Connection(self.config, self.server_state, self.lifespan.state, self._limits, app)

    def _connections(self) -> list[Connection]:
        return list(self.server_state.connections)  # type: ignore[arg-type]

    def _check_connections(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in self._connections():
            limit = connection.check(now)
            if limit is not None:
                self.faults.count(limit, _PROBLEMS[limit])

    def _cut(self) -> None:
        """Requests notice that their clients are gone, and end by themselves."""
        for connection in self._connections():
            if connection.is_waiting or connection.unsent:
                connection.drop()
