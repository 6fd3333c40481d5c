"""Runs an app on the main thread until a signal, then drains and ends: for serve, demo, sidecar."""

import asyncio
import logging
import math
import socket
import threading
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from exporter.cli.signals import Ending

FORCED_SECONDS = 1.0
"""After a second Ctrl-C: for aborted requests to send their last chunk."""
STALLED_CLIENT_SECONDS = 5
"""After the drain: for clients to read what is left; then their connections are cut."""

logger = logging.getLogger("kvscope")

Drain = Callable[[float], None]
"""Ends requests under way; blocks for at most so many seconds."""


class AppServer(uvicorn.Server):
    """Drains while uvicorn waits for connections; what is cut short ends as `abort`."""

    def __init__(self, app: ASGIApp, drain_seconds: float = 0.0) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                ws="none",
                log_config=None,
                access_log=False,
                lifespan="on",
                timeout_graceful_shutdown=math.ceil(drain_seconds) + STALLED_CLIENT_SECONDS,
            )
        )
        self._drain_seconds = drain_seconds
        self.drain: Drain | None = None
        """Set once there is something to drain; None: the server ends at once."""

    def run_until_end(self, listener: socket.socket, ending: Ending) -> None:
        """Serve on the main thread; returns after a signal or `should_exit`."""
        ending.attach(self)
        self.run(sockets=[listener])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.drain is not None:
            logger.info("stopping: up to %g s for requests under way", self._drain_seconds)
            self._drain_aside(self._drain_seconds)
        await super().shutdown(sockets)
        if self.force_exit:  # a second Ctrl-C; uvicorn would leave all that follows out
            self._drain_aside(0.0)
            if self.server_state.tasks:
                await asyncio.wait(self.server_state.tasks, timeout=FORCED_SECONDS)
            await self.lifespan.shutdown()

    def _drain_aside(self, seconds: float) -> None:
        """In a thread of its own: asyncio would wait for those of its executor."""
        if self.drain is not None:
            threading.Thread(target=self.drain, args=(seconds,), name="drain", daemon=True).start()
