"""The fleet of a single sidecar: the servers that it watches, read without HTTP."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from kvscope_exporter.clock import Clock
from kvscope_exporter.fetch.error import FetchError
from kvscope_exporter.fleet.collector import FleetCollector
from kvscope_exporter.fleet.fleet import Fleet
from kvscope_exporter.fleet.follower import Follower
from kvscope_exporter.fleet.member import Read

NAME = "this"
"""Name of the sidecar itself."""


class ProjectionSource(Protocol):
    def document(self, positions: str) -> bytes:
        """The streams of all servers from these positions on. Raises ValueError."""
        ...


class OwnFleet(Collector):
    """Its families, for the page of the sidecar."""

    def __init__(self, clock: Clock) -> None:
        self.fleet = Fleet()
        self._follower = Follower(self.fleet, clock)
        self._collector = FleetCollector(self.fleet, lambda: self._follower.members, clock)

    @contextmanager
    def following(self, projections: ProjectionSource) -> Iterator[None]:
        """Follow these servers inside the block."""
        self._follower.watch({NAME: lambda: _reading(projections)})
        self._follower.start()
        try:
            yield
        finally:
            self._follower.stop()

    def collect(self) -> Iterable[Family]:
        yield from self._collector.collect()


def _reading(projections: ProjectionSource) -> Read:
    def read(positions: str) -> bytes:
        try:
            return projections.document(positions)
        except ValueError as error:
            raise FetchError("protocol", str(error)) from None

    return read
