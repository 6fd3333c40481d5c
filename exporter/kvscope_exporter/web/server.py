"""uvicorn with limits for requests and a timely shutdown."""

import asyncio
import math
import socket
import ssl

import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from kvscope_exporter.web.guard import Guard
from kvscope_exporter.web.limits import Limits
from kvscope_exporter.web.quiet import quieten

MAX_HEADER_BYTES = 64 << 10
BACKLOG = 2048
"""Connections that the kernel holds until they are accepted."""
BURST = 64
"""Connections accepted in a row; without files left, asyncio also fails that often in a row."""
LAST_SECONDS = 2.0
"""Time beyond that of requests in progress; then those that continue are cancelled."""


class WebServer(uvicorn.Server):
    """Serves on sockets that are already bound."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        lifespan: bool = False,
        stop_seconds: float = 0.0,
    ) -> None:
        """stop_seconds: for requests in progress at the end."""
        quieten()
        limits = limits or Limits()
        self._guard = Guard(app, limits)
        super().__init__(
            uvicorn.Config(
                self._guard,
                backlog=BURST,
                http="h11",  # whatever else is installed
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # any client could claim another's address
                lifespan="on" if lifespan else "off",
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_keep_alive=math.ceil(limits.idle_seconds),
            )
        )
        self.set_stop_seconds(stop_seconds)
        self.config.load()
        self.config.ssl = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # anyio loads a part of itself with its first thread: too late once files have run out.
        await run_in_threadpool(int)
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._guard.stopping.set()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):  # their clients do not read
            connection.transport.abort()
        await asyncio.sleep(0)

    def set_stop_seconds(self, seconds: float) -> None:
        """Change the time that requests in progress may still take at the end."""
        self.config.timeout_graceful_shutdown = math.ceil(seconds + LAST_SECONDS)
