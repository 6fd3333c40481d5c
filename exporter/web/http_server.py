"""Serves an app on a port of its own, from a daemon thread, with limits against stuck clients."""

import asyncio
import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

BACKLOG = 2048
IDLE_SECONDS = 10
"""A client that sends no complete request for this long loses its connection."""
MAX_CONNECTIONS = 64
"""Further connections are answered with 503: a few scrapers need one each."""
STOP_SECONDS = 1
"""Time for answers under way when the server stops."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError with a reason in `strerror`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except UnicodeError as error:  # `a..b`, for one, cannot be a name
        raise OSError(None, "no such host") from error
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


class HttpServer:
    """Binds on construction; raises OSError where the port is not available."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        self._socket = bind(host, port)
        self.port = int(self._socket.getsockname()[1])
        """The port that is bound, also where 0 was asked for."""
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=ImpatientProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS,
                limit_concurrency=MAX_CONNECTIONS,
            )
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


class ImpatientProtocol(H11Protocol):
    """Limits what uvicorn does not: the wait for a first request, and for the rest of a header."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(IDLE_SECONDS, self._look, self.cycle)

    def _look(self, before: object) -> None:
        """Close unless a request is being answered, or was begun since the last check."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        if cycle is before and (cycle is None or cycle.response_complete):
            self.transport.close()
        else:
            self._wait()
