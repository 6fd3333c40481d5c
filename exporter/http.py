"""Serves pages over HTTP: as a router of an application, or on a port of its own."""

import gzip
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import gzip_accepted

PATH = "/metrics"
SOCKET_SECONDS = 10.0
"""A scraper that stalls longer loses its connection; Prometheus gives up after 10 s, too."""


class Exposition(Protocol):
    """What can be served."""

    def render(self, accept: str | None = None) -> tuple[bytes, str]:
        """The page and its content type."""
        ...


def metrics_router(exposition: Exposition) -> APIRouter:
    """`/metrics` for an application; rendered on a worker thread, so the event loop goes on."""
    router = APIRouter()

    @router.get(PATH, include_in_schema=False)
    def metrics(request: Request) -> Response:
        page, headers = _respond(
            exposition,
            ", ".join(request.headers.getlist("accept")),
            ", ".join(request.headers.getlist("accept-encoding")),
        )
        return Response(page, headers=headers)

    return router


class MetricsServer:
    """`/metrics` on a port of its own, in daemon threads; bound when it is made."""

    def __init__(self, exposition: Exposition, host: str, port: int) -> None:
        self._server = _server_class(host, port)((host, port), _handler_class(exposition))
        self.port = int(self._server.server_address[1])
        """The real one, if 0 was asked for."""
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="kvscope-metrics",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the port; returns when nothing listens any more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def serve_metrics(exposition: Exposition, host: str, port: int) -> MetricsServer:
    """Serve now; raises OSError where the port cannot be had. The caller stops it."""
    return MetricsServer(exposition, host, port)


def _respond(
    exposition: Exposition, accept: str, accept_encoding: str
) -> tuple[bytes, dict[str, str]]:
    page, content_type = exposition.render(accept)
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if gzip_accepted(accept_encoding):
        page = gzip.compress(page, compresslevel=1)
        headers["Content-Encoding"] = "gzip"
    return page, headers


def _server_class(host: str, port: int) -> type[ThreadingHTTPServer]:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]

    class Server(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True

    return Server


def _handler_class(exposition: Exposition) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SOCKET_SECONDS

        def do_GET(self) -> None:
            if urlsplit(self.path).path != PATH:
                self.send_error(HTTPStatus.NOT_FOUND, f"only {PATH} is here")
                return
            page, headers = _respond(
                exposition,
                ", ".join(self.headers.get_all("Accept", [])),
                ", ".join(self.headers.get_all("Accept-Encoding", [])),
            )
            self.send_response(HTTPStatus.OK)
            for header, value in headers.items():
                self.send_header(header, value)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            """A scrape is no news."""

    return Handler
