"""Endpoints of the wire: `ipc:///DIRECTORY/NAME` or `tcp://HOST:PORT`, checked before any use.

A tcp address must be a loopback address unless remote ones are allowed: the wire has no encryption
and no authentication.
"""

import os
from typing import NamedTuple

MAX_SOCKET_PATH_BYTES = 107
"""Linux's limit for the path of a unix socket."""
_FORM = "use ipc:///DIRECTORY/NAME.sock or tcp://127.0.0.1:PORT"


class EndpointError(Exception):
    """An endpoint that cannot be used; says where, what is wrong, and what to do."""

    def __init__(self, endpoint: str, problem: str, remedy: str) -> None:
        super().__init__(f"{endpoint}: {problem}; {remedy}")
        self.endpoint = endpoint
        self.problem = problem
        self.remedy = remedy


class Endpoint(NamedTuple):
    """An endpoint that has been checked."""

    address: str
    path: str | None = None  # socket file of an ipc endpoint; None: tcp
    host: str = ""
    port: int = 0


def parse_endpoint(text: str, *, allow_remote: bool = False) -> Endpoint:
    """Raises EndpointError; touches neither files nor network."""
    transport, separator, rest = text.partition("://")
    if separator and transport == "ipc":
        return _ipc(text, rest)
    if separator and transport == "tcp":
        return _tcp(text, rest, allow_remote)
    raise EndpointError(repr(text), "not an endpoint of the wire", _FORM)


def _ipc(text: str, rest: str) -> Endpoint:
    if not rest.startswith("/") or rest.endswith("/") or "\0" in rest:
        raise EndpointError(repr(text), "not the absolute path of a socket", _FORM)
    length = len(os.fsencode(rest))
    if length > MAX_SOCKET_PATH_BYTES:
        raise EndpointError(
            text,
            f"the path has {length} bytes, a unix socket takes {MAX_SOCKET_PATH_BYTES}",
            "use a shorter one",
        )
    return Endpoint(text, rest)


def _tcp(text: str, rest: str, allow_remote: bool) -> Endpoint:
    host, separator, port = rest.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise EndpointError(repr(text), "not HOST:PORT with a port from 0 to 65535", _FORM)
    if not allow_remote and not _is_loopback(host):
        raise EndpointError(
            text,
            f"{host} is not a loopback address, and the wire is not encrypted",
            "use 127.0.0.1, and an encrypted tunnel from another host",
        )
    host = "127.0.0.1" if host == "localhost" else host
    return Endpoint(f"tcp://{host}:{port}", None, host.strip("[]"), int(port))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    import ipaddress  # 3 ms that no ipc endpoint needs

    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
