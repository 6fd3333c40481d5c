"""Validity of a server's address: HOST:PORT as text, or the host and port of a URL."""

import re

import httpx

MAX_PORT = 65535
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]{0,252}))(:[0-9]{1,5})?")


def is_address(text: str) -> bool:
    """Whether the text is a host, or a host and a port."""
    if _ADDRESS.fullmatch(text) is None:
        return False
    port = re.search(r":([0-9]+)$", text.rpartition("]")[2])
    return port is None or 0 < int(port[1]) <= MAX_PORT


def address_problem(url: httpx.URL) -> str:
    """Describe what is wrong with the address; empty if nothing is."""
    host = url.raw_host.decode()
    if url.scheme not in ("http", "https") or not host:
        return "is not the URL of a server: expected http://HOST:PORT"
    try:
        host.encode("idna")  # as the resolver does
    except UnicodeError:
        return "has a host with an empty part, or one of more than 63 characters"
    if url.port is not None and not 0 < url.port <= MAX_PORT:
        # The resolver takes such a number modulo 65536, which is a different port.
        return f"has no port from 1 to {MAX_PORT}"
    return ""
