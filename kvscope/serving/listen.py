"""Listening sockets of a command, and their addresses as URLs."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp

from kvscope.output import fail
from kvscope_exporter.web.http_server import HttpServer, bind


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """The main socket, bound before anything slow happens. Raises typer.Exit(2)."""
    try:
        listener = bind(host, port)
    except OSError as error:
        raise fail(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another --port or --host"
        ) from None
    with listener:
        yield listener


def metrics_listener(
    app: ASGIApp, host: str, port: int, tls: ssl.SSLContext | None = None
) -> HttpServer:
    """Serve the app on --metrics-port. Raises typer.Exit(2)."""
    try:
        return HttpServer(app, host, port, tls=tls)
    except OSError as error:
        raise fail(
            f"cannot listen on {host}:{port} for metrics ({error.strerror}): "
            "choose another --metrics-port or --metrics-host"
        ) from None


def url_of(host: str, port: int, *, tls: bool = False) -> str:
    """The address as a URL, IPv6 in brackets."""
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
