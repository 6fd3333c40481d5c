"""Runs an app on the main thread until a signal, then drains and ends: for serve, demo, sidecar."""

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from types import FrameType

from starlette.types import ASGIApp

from kvscope.serving.signals import Ending
from kvscope_exporter.web.limits import Limits
from kvscope_exporter.web.server import WebServer

FORCED_SECONDS = 1.0
"""Time for aborted requests to send their last chunk, after a second signal."""
logger = logging.getLogger("kvscope")

Drain = Callable[[float], object]
"""Ends the requests in progress; blocks for at most the given seconds."""


class AppServer(WebServer):
    """Drains while uvicorn waits for connections; requests cut short end as `abort`."""

    def __init__(
        self,
        app: ASGIApp,
        drain_seconds: float = 0.0,
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(app, limits=limits, tls=tls, lifespan=True, stop_seconds=drain_seconds)
        self._drain_seconds = drain_seconds
        self.drain: Drain | None = None
        """Set once there are requests to drain; None: the server ends at once."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal ends the server in an orderly way, the second one immediately."""
        if self.should_exit:
            self.force_exit = True  # uvicorn does so only after Ctrl-C
        super().handle_exit(sig, frame)

    def end_within(self, seconds: float) -> None:
        """End as after a signal; responses have that long to be sent. Callable from any thread."""
        self._drain_seconds = seconds
        self.set_stop_seconds(seconds)
        self.should_exit = True

    def run_until_end(self, listener: socket.socket, ending: Ending) -> None:
        """Serve on the main thread; returns after a signal or `should_exit`."""
        ending.attach(self)
        self.run(sockets=[listener])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.drain is not None:
            logger.info("stopping: up to %g s for requests under way", self._drain_seconds)
            self._drain_aside(self._drain_seconds)
        await super().shutdown(sockets)
        if self.force_exit:  # a second signal; uvicorn would skip the rest
            self._drain_aside(0.0)
            if self.server_state.tasks:
                await asyncio.wait(self.server_state.tasks, timeout=FORCED_SECONDS)
            await self.lifespan.shutdown()

    def _drain_aside(self, seconds: float) -> None:
        """Drain on a thread of its own, since asyncio would wait for those of its executor."""
        if self.drain is not None:
            threading.Thread(target=self.drain, args=(seconds,), name="drain", daemon=True).start()
