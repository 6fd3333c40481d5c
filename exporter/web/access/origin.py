"""Keeps pages of other sites, in a browser that reaches this server, from changing anything here.

A page of another site can send a form to any address; that is no JSON, and names its origin. A page
whose own name leads to this server (DNS rebinding) names that in Host.
"""

import ipaddress
from collections.abc import Collection

from starlette.types import Scope

from exporter.web.access.headers import has_header, header
from exporter.web.address import is_address
from exporter.web.refusal import Refused

_LOOPBACK_NAME = "localhost"
_JSON = b"application/json"


class SameOrigin:
    """Admits JSON from clients that are no browser, or from a page of this server itself."""

    def __init__(self, hosts: Collection[str]) -> None:
        """hosts: names of this server, beside loopback and the address that was connected to."""
        self._hosts = {_host_of(host) for host in hosts}

    async def admit(self, scope: Scope) -> str | None:
        """None: who it is remains unknown. Raises Refused."""
        host = header(scope, b"host").decode("latin-1")
        if not is_address(host) or not self._is_ours(_host_of(host), scope):
            shown = "".join(char if char.isprintable() else "?" for char in host[:80])
            raise Refused(403, f"the Host {shown!r} is not allowed here: see --allowed-host")
        if has_header(scope, b"origin"):
            origin = header(scope, b"origin").decode("latin-1").lower()
            if origin != f"{scope['scheme']}://{host}".lower():
                raise Refused(403, "a page of another origin may not change anything here")
        if header(scope, b"content-type").partition(b";")[0].strip().lower() != _JSON:
            raise Refused(
                415, "without an API key, this needs the header Content-Type: application/json"
            )
        return None

    def _is_ours(self, host: str, scope: Scope) -> bool:
        if host in self._hosts or host == _LOOPBACK_NAME:
            return True
        server = scope.get("server")
        if server is not None and host == _host_of(server[0]):
            return True  # of an address, DNS cannot make anything else
        return is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address or name; IPv6 with or without brackets."""
    if host == _LOOPBACK_NAME:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host_of(text: str) -> str:
    """`[::1]:8000` → `::1`, `Example:80` → `example`; an address without brackets as it is."""
    text = text.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0].removesuffix(".")
