"""Serves an app on a port of its own, from a daemon thread."""

import socket
import ssl
import threading
from types import TracebackType
from typing import Self

from starlette.types import ASGIApp

from exporter.web.limits import Limits
from exporter.web.server import BACKLOG, WebServer

LIMITS = Limits(max_connections=64)
"""A few scrapers need a connection each."""
STOP_SECONDS = 0.5
"""Time for responses in progress when the server stops."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError with a reason in `strerror`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except UnicodeError as error:  # `a..b`, for one, cannot be a name
        raise OSError(None, "no such host") from error
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # Connections inherit it; without it the body of a response waits up to 40 ms after its header.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class HttpServer:
    """Binds on construction; raises OSError if the port is not available."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self._socket = bind(host, port)
        self.port = int(self._socket.getsockname()[1])
        """The bound port, even if 0 was requested."""
        self._server = WebServer(
            app, name=f"port {self.port}", limits=limits, tls=tls, stop_seconds=STOP_SECONDS
        )
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="kvscope-http", daemon=True
        )
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Close the port; returns once nothing listens on it."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
