"""The sidecars to follow: given by name, listed for Prometheus, or found behind a DNS name.

A list that cannot be read leaves the one before it in use.
"""

import logging
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from kvscope_events.printable import printable
from kvscope_events.throttle import Throttle
from kvscope_exporter.clock import BackgroundLoop
from kvscope_exporter.configuration.check_server import url_problem
from kvscope_exporter.fetch.address import is_address
from kvscope_exporter.fetch.error import JSON_ERRORS, FetchError
from kvscope_exporter.fetch.fetch import Fetcher
from kvscope_exporter.files.foreign import read_small
from kvscope_exporter.scrape.tls import Tls

REFRESH_SECONDS = 30.0
MAX_SIDECARS = 512
MAX_LIST_BYTES = 4 << 20
_TIMEOUT_SECONDS = 5.0
logger = logging.getLogger(__name__)

Place = tuple[str, str]
"""Name and base URL of a sidecar."""
Find = Callable[[], Iterable[Place]]
"""Raises RosterError."""


class RosterError(Exception):
    """A list of sidecars that cannot be read; `str()` says which, and why."""


class _Group(msgspec.Struct):
    """A group of Prometheus' file_sd_configs and http_sd_configs."""

    targets: Annotated[list[str], msgspec.Meta(max_length=1 << 12)]
    labels: dict[str, str] = {}


_DECODER = msgspec.json.Decoder(list[_Group])


def listed_in(file: Path) -> Find:
    """Sidecars in a file of targets in Prometheus' JSON format."""

    def find() -> list[Place]:
        try:
            return _places(str(file), read_small(file, MAX_LIST_BYTES))
        except OSError as error:
            raise RosterError(f"{file}: {error.strerror or error}") from None

    return find


def listed_at(url: str, tls: Tls) -> Find:
    """Sidecars in an answer to Prometheus' http_sd_configs, asked without the sidecars' key.

    Raises OSError for a file of `tls`.
    """
    fetcher = Fetcher(tls.client(url, _TIMEOUT_SECONDS), url, headers={}, max_bytes=MAX_LIST_BYTES)

    def find() -> list[Place]:
        try:
            return _places(url, fetcher.fetch(_TIMEOUT_SECONDS).body)
        except FetchError as error:
            raise RosterError(f"{url}: {error}") from None

    return find


def behind(name: str, port: int, scheme: str) -> Find:
    """Every address of a DNS name, such as a headless service's.

    Raises ValueError for an invalid name.
    """
    if problem := url_problem(f"{scheme}://{name}:{port}"):
        raise ValueError(f"{name}: {problem}")

    def find() -> list[Place]:
        try:
            found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise RosterError(f"{name}: {error.strerror or error}") from None
        hosts = dict.fromkeys(str(address[0]) for *_, address in found)
        addresses = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts]
        return [(address, f"{scheme}://{address}") for address in addresses]

    return find


def _places(where: str, content: bytes) -> list[Place]:
    """Raises RosterError."""
    if len(content) > MAX_LIST_BYTES:
        raise RosterError(f"{where}: over {MAX_LIST_BYTES >> 20} MiB")
    try:
        groups = _DECODER.decode(content)
    except JSON_ERRORS as error:
        raise RosterError(f"{where}: not a list of targets as for Prometheus: {error}") from None
    places: dict[str, str] = {}
    for group in groups:
        scheme = group.labels.get("__scheme__", "http")
        for target in group.targets:
            if not is_address(target) or scheme not in ("http", "https"):
                raise RosterError(f"{where}: {printable(target)[:80]!r} is not HOST:PORT")
            places[target] = f"{scheme}://{target}"  # a sidecar lists itself once for each server
    return list(places.items())


def fixed(places: Sequence[Place]) -> Find:
    """A list that never changes. Raises ValueError for an invalid URL."""
    for name, url in places:
        if problem := url_problem(url):
            raise ValueError(f"{name}: {problem}")
    return lambda: places


class Roster:
    """Looks again every half minute, on a thread of its own."""

    def __init__(self, finds: Sequence[Find], changed: Callable[[Mapping[str, str]], None]) -> None:
        """changed: called with all URLs by name whenever they may have changed.

        If it raises OSError, for a file that it needs, it is called again next time.
        """
        self._last: list[tuple[Find, list[Place]]] = [(find, []) for find in finds]
        self._changed = changed
        self._throttle = Throttle(time.monotonic_ns)
        self._loop = BackgroundLoop("kvscope-roster", REFRESH_SECONDS, self.look)

    def look(self) -> None:
        """Look once; never raises."""
        places: dict[str, str] = {}
        for number, (find, last) in enumerate(self._last):
            found = last
            try:
                found = list(find())
            except RosterError as error:
                if self._throttle.allow(str(number)):
                    logger.warning("%s; %d sidecars are known from there", error, len(last))
            self._last[number] = (find, found)
            places.update(found)
        if len(places) > MAX_SIDECARS:
            if self._throttle.allow("number"):
                logger.error("over %d sidecars: the others are left out", MAX_SIDECARS)
            places = dict(list(places.items())[:MAX_SIDECARS])
        try:
            self._changed(places)
        except OSError as error:
            if self._throttle.allow("change"):
                logger.error("the sidecars followed stay as they are: %s", error)

    def start(self) -> None:
        """Begin to look; called once."""
        self._loop.start()

    def stop(self) -> None:
        """End the thread, or leave it to itself while a name server holds it."""
        self._loop.end()
