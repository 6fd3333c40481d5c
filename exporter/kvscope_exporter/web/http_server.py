"""Serves an app on a port of its own, from a daemon thread."""

import socket
import ssl
import threading
from types import TracebackType
from typing import Self

from starlette.types import ASGIApp

from kvscope_exporter.web.limits import Limits
from kvscope_exporter.web.server import BACKLOG, WebServer

LIMITS = Limits(max_requests=64)
"""A few scrapers need one each."""
UNREAD_SECONDS = 20.0
"""A client that reads nothing of what is sent to it for this long loses its connection."""
STOP_SECONDS = 0.5
"""Time for responses in progress when the server stops."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError with a reason in `strerror`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except UnicodeError as error:  # `a..b`, for one, cannot be a name
        raise OSError(None, "no such host") from error
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # Connections inherit these. Without the first the body of a response waits up to 40 ms after
    # its header; the others end connections whose client has vanished or never reads.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    unread_ms = round(UNREAD_SECONDS * 1e3)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unread_ms)
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
        self._server = WebServer(app, limits=limits, tls=tls, stop_seconds=STOP_SECONDS)
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
