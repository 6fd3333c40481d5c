"""Where a command listens: its settings, its sockets, and how addresses are shown."""

import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp

from exporter.cli.output import fail
from exporter.web.listener import Listener, bind


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """Where the server listens and how it ends."""

    host: str = "127.0.0.1"
    """Loopback by default: the API has no authentication unless a key is set."""
    port: int = 8000
    """0: a free one."""
    metrics_port: int | None = None
    """A further port for /metrics alone; None: only the main one."""
    metrics_host: str = "127.0.0.1"
    api_key: str | None = None
    """Bearer token; None: open to everyone who reaches the port."""
    drain_seconds: float = 30.0
    """How long a signal waits for requests under way."""

    def __post_init__(self) -> None:
        if not 0 <= self.drain_seconds < math.inf:  # also refuses NaN
            raise ValueError(f"drain_seconds must be finite, got {self.drain_seconds}")
        if self.api_key == "":
            raise ValueError("api_key must not be empty: leave it out to serve without one")


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """The main socket, taken before anything slow happens. Raises typer.Exit(2)."""
    try:
        listener = bind(host, port)
    except OSError as error:
        raise fail(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another --port or --host"
        ) from None
    with listener:
        yield listener


def metrics_listener(app: ASGIApp, host: str, port: int) -> Listener:
    """Serve the app on --metrics-port. Raises typer.Exit(2)."""
    try:
        return Listener(app, host, port)
    except OSError as error:
        raise fail(
            f"cannot listen on {host}:{port} for metrics ({error.strerror}): "
            "choose another --metrics-port or --metrics-host"
        ) from None


def url_of(host: str, port: int) -> str:
    """The address as a URL, IPv6 in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
