"""Without a key, only this machine may change anything here, but not another site's page in its
browser, which may not read anything either.

Another site's page can send a form to any address; that is not JSON, and names its origin. A page
whose own name resolves to this server (DNS rebinding) sends that name in Host.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Collection

from starlette.types import Scope

from kvscope_events.printable import one_line
from kvscope_exporter.fetch.address import is_address
from kvscope_exporter.web.access.credentials import has_header, header
from kvscope_exporter.web.refusal import Refused

_SHOWN_CHARACTERS = 80
_LOOPBACK_NAME = "localhost"
_JSON = b"application/json"
_LOCAL_DOMAINS = (".localhost", ".svc", ".cluster.local", ".internal", ".home.arpa")
"""Domains that cannot be registered: of this machine, of a cluster, of a private network."""


class KnownHost:
    """Admits requests under a name that cannot be another site's.

    DNS cannot redirect an address, nor can a name that no public DNS has be another site's:
    Prometheus asks a Service of Kubernetes or Compose by such a name. The owner of any other name
    could have it resolve to this server, so it must be this server's own.
    """

    def __init__(self, hosts: Collection[str]) -> None:
        """hosts: names of this server."""
        self._hosts = {_host_of(host) for host in hosts}
        self._own: frozenset[str] | None = None

    async def admit(self, scope: Scope) -> str | None:
        """Always None: the client stays anonymous. Raises Refused."""
        if not has_header(scope, b"host"):
            return None  # no browser
        text = header(scope, b"host").decode("latin-1")
        if is_address(text):
            host = _host_of(text)
            if host in self._hosts or _is_private(host):
                return None
            if self._own is None:  # DNS may take a while
                self._own = await asyncio.to_thread(_own_names)
            if host in self._own:
                return None
        raise Refused(
            403,
            f"the Host {one_line(text, _SHOWN_CHARACTERS)!r} is not known here: ask by the "
            "address, name it with --allowed-host, or have a key required",
        )


def _is_private(host: str) -> bool:
    if "." not in host or host.endswith(_LOCAL_DOMAINS):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _own_names() -> frozenset[str]:
    return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()})


class SameOrigin:
    """Admits JSON from this machine: from anything but a browser, or from a page of this server."""

    def __init__(self, hosts: Collection[str]) -> None:
        """hosts: names of this server, besides loopback and the address that was connected to."""
        self._hosts = {_host_of(host) for host in hosts}

    async def admit(self, scope: Scope) -> str | None:
        """Always None: the client stays anonymous. Raises Refused."""
        if not _is_of_this_machine(scope):
            raise Refused(
                403,
                "without a key, this is allowed from the same machine only: use its loopback "
                "address there (`kubectl exec`, `docker exec`), or give kvscope an --api-key-file "
                "or --metrics-key-file",
            )
        host = header(scope, b"host").decode("latin-1")
        if not is_address(host) or not self._is_ours(_host_of(host), scope):
            shown = one_line(host, _SHOWN_CHARACTERS)
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
            return True  # DNS cannot redirect an address
        return is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address or name; IPv6 with or without brackets."""
    if host == _LOOPBACK_NAME:
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)  # of a port that listens on IPv6 and IPv4
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def _is_of_this_machine(scope: Scope) -> bool:
    """By the address of the connection; a proxy on this machine answers for its own clients."""
    client, server = scope.get("client"), scope.get("server")
    if client is None:  # a socket of this machine
        return True
    return is_loopback(client[0]) or (server is not None and client[0] == server[0])


def _host_of(text: str) -> str:
    """`[::1]:8000` → `::1`, `Example:80` → `example`; an address without brackets as it is."""
    text = text.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0].removesuffix(".")
