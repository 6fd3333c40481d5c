"""One spelling for all spellings of an endpoint or URL, to find duplicates."""

import ipaddress
import os
import re

import httpx

FOLDER = "/*"
"""Suffix of an endpoint that stands for all sockets of a directory."""
_LOOPBACK = "127.0.0.1"
_ANY = ("localhost", "*", "0.0.0.0", "[::]")
"""Hosts that mean the local host to a client."""
_PORTS = {"http": 80, "https": 443}


def place_of(endpoint: str) -> str:
    """`tcp://localhost:05557` → `tcp://127.0.0.1:5557`, `ipc:///run//a.sock` → `ipc:///run/a.sock`.

    Anything that is not an endpoint is returned unchanged.
    """
    transport, separator, rest = endpoint.partition("://")
    if separator and rest.startswith("/"):
        folder, name = os.path.split(rest)
        return f"{transport}://{os.path.join(os.path.realpath(folder), name)}"
    match = re.fullmatch(r"(?P<host>.+):0*(?P<port>[0-9]+)", rest)
    if separator and transport == "tcp" and match is not None:
        return f"tcp://{_host(match['host'])}:{match['port']}"
    return endpoint


def place_of_page(url: str, path: str) -> str:
    """The address of a page; the URL must be valid."""
    parsed = httpx.URL(url)
    port = parsed.port or _PORTS.get(parsed.scheme, 0)
    return f"{parsed.scheme}://{_host(parsed.host)}:{port}{parsed.path.rstrip('/')}{path}"


def is_folder(endpoint: str) -> bool:
    """Whether the endpoint stands for all sockets of a directory."""
    return endpoint.startswith("ipc://") and endpoint.endswith(FOLDER)


def folder_of(endpoint: str) -> str | None:
    """The folder endpoint that a socket belongs to; None: not a socket, or itself a folder."""
    if not endpoint.startswith("ipc://") or is_folder(endpoint):
        return None
    return place_of(endpoint).rpartition("/")[0] + FOLDER


def _host(host: str) -> str:
    """Lower case, and addresses in their shortest form."""
    host = host.lower()
    if host in _ANY:
        return _LOOPBACK
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return f"[{address}]" if mapped is None else str(mapped)
    return str(address)
