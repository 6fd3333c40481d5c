"""Watches servers in other processes: one page for each, and its own; the servers may change."""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from kvscope_exporter.catalogue.metric import Detail
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.families import Families
from kvscope_exporter.configuration import ServerConfig
from kvscope_exporter.configuration.access import tls_digest
from kvscope_exporter.machine.gpu import GpuPoller
from kvscope_exporter.machine.machine import Machine, polled
from kvscope_exporter.recorder.flight import Flight
from kvscope_exporter.sidecar.assembly import MakeListener, exporter_of
from kvscope_exporter.sidecar.departures import Departures
from kvscope_exporter.targets.exporter import Exporter, check_compat


class Changes(NamedTuple):
    """Names of servers, by the kind of change."""

    added: list[str]
    rebuilt: list[str]
    """Reconfigured servers; their state was reset."""
    removed: list[str]
    kept: list[str]

    def __str__(self) -> str:
        """`1 added (blue), 0 rebuilt, 0 removed, 3 kept`."""
        named = [
            f"{len(names)} {what}" + (f" ({', '.join(names)})" if names else "")
            for what, names in (
                ("added", self.added),
                ("rebuilt", self.rebuilt),
                ("removed", self.removed),
            )
        ]
        return ", ".join([*named, f"{len(self.kept)} kept"])


class Reloads(Collector):
    """Whether the configuration file was usable when it was last read; at first it was."""

    def __init__(self, clock: Clock) -> None:
        self._families = Families({}, clock)
        self._successful = True

    def ended(self, *, successful: bool) -> None:
        """A reload has just ended."""
        self._successful = successful

    def collect(self) -> Iterable[Family]:
        yield self._families.single("kvscope_config_last_reload_successful", self._successful)


class _WatchedServer(NamedTuple):
    config: ServerConfig
    key: object
    """Equal as long as the exporter can be kept."""
    exporter: Exporter
    compat: frozenset[str]

    @property
    def listens(self) -> bool:
        """Whether it has a port that engines connect to."""
        streams = self.config.kv_events
        return streams != "auto" and any(stream.bind for stream in streams)


class Sidecar:
    """With one server, `own` is its page. With several, each has a page of its own, since a page
    describes one server, and `own` has only the state of this process.
    """

    def __init__(
        self,
        servers: Sequence[ServerConfig],
        *,
        compat: Collection[str] = (),
        gpu: GpuPoller | None = None,
        clock: Clock | None = None,
        further: Collection[Collector] = (),
        listener: MakeListener | None = None,
        flight: Flight | None = None,
        detail: Detail = "full",
    ) -> None:
        """further: additional collectors of `own`. listener: made for each engine with events.
        flight: records every server. detail: of every page.

        Raises EndpointError and ConfigurationError.
        """
        self._clock = clock or Clock()
        self._gpu = gpu
        self._listener = listener
        self._flight = flight
        self._detail = detail
        self._lock = threading.Lock()
        self._started = False
        self._about = (ProcessCollector(registry=None), *further)
        self._state = Exporter([], machine=Machine(), clock=self._clock, process=False)
        self._state.show(Machine(), self._about)
        self._state.detail = detail
        self._servers: dict[str, _WatchedServer] = {}
        self.own = self._state
        """The page of this process."""
        self._departures = Departures(
            lambda: {name: watched.exporter for name, watched in self._servers.items()}, self._clock
        )
        self.watch(servers, compat)

    def names(self) -> list[str]:
        """The servers, in the order given."""
        return list(self._servers)

    def labels(self, name: str) -> Mapping[str, str]:
        """Labels that the configuration gives a server; empty if no server has that name."""
        watched = self._servers.get(name)
        return {} if watched is None else watched.config.labels

    def server(self, name: str) -> Exporter | None:
        """The page of a server; None if no server has that name."""
        watched = self._servers.get(name)
        return None if watched is None else watched.exporter

    def watch(self, servers: Sequence[ServerConfig], compat: Collection[str]) -> Changes:
        """Watch these from now on; a server whose configuration has not changed keeps its state.

        Raises EndpointError and ConfigurationError, without having changed anything.
        """
        check_compat(compat)
        with self._lock:
            before = self._servers
            wanted = {server.name: (server, _key(server, compat)) for server in servers}
            ending = [w for n, w in before.items() if n not in wanted or w.key != wanted[n][1]]
            now: dict[str, _WatchedServer] = {}
            _stop([watched for watched in ending if watched.listens])  # others may need the port
            try:
                for name, (config, key) in wanted.items():
                    now[name] = self._kept_or_new(config, key, compat)
            except BaseException:
                _stop(_only(now, before))
                self._restore([watched for watched in ending if watched.listens])
                raise
            self._show(now)
            if self._started:
                for watched in _only(now, before):
                    watched.exporter.start()
            _stop([watched for watched in ending if not watched.listens])
        return Changes(
            added=[name for name in now if name not in before],
            rebuilt=[n for n, w in now.items() if n in before and w.exporter != before[n].exporter],
            removed=[name for name in before if name not in now],
            kept=[n for n, w in now.items() if n in before and w.exporter == before[n].exporter],
        )

    def start(self) -> None:
        """Begin to read; may be called once."""
        with self._lock:
            self._started = True
            for watched in self._servers.values():
                watched.exporter.start()
            self._departures.start()

    def stop(self) -> None:
        """End all threads; pages can still be rendered."""
        self._departures.stop()
        with self._lock:
            _stop(list(self._servers.values()))

    def _kept_or_new(
        self, config: ServerConfig, key: object, compat: Collection[str]
    ) -> _WatchedServer:
        known = self._servers.get(config.name)
        if known is not None and known.key == key:
            return known._replace(config=config)
        return _WatchedServer(config, key, self._exporter(config, compat), frozenset(compat))

    def _exporter(self, config: ServerConfig, compat: Collection[str]) -> Exporter:
        flight = self._flight
        recorder = None if flight is None else flight.recorder(config.name, sorted(compat))
        exporter = exporter_of(config, compat, self._clock, self._listener, recorder)
        exporter.detail = self._detail
        if flight is not None:
            exporter.recorded_by(flight)
        return exporter

    def _restore(self, stopped: Sequence[_WatchedServer]) -> None:
        """Watch these again after all, with their state reset."""
        for watched in stopped:
            exporter = self._exporter(watched.config, watched.compat)
            self._show({**self._servers, watched.config.name: watched._replace(exporter=exporter)})
            if self._started:
                exporter.start()

    def _show(self, servers: dict[str, _WatchedServer]) -> None:
        alone = len(servers) == 1
        machine = polled(self._gpu, only_reported=not alone)
        for watched in servers.values():
            watched.exporter.show(machine, self._about if alone else ())
        self._servers = servers
        self.own = next(iter(servers.values())).exporter if alone else self._state


def _key(config: ServerConfig, compat: Collection[str]) -> object:
    """Equal as long as an exporter can be kept."""
    bare = msgspec.structs.replace(config, labels={})  # they are Prometheus', not ours
    return bare, frozenset(compat), tls_digest(config)


def _only(
    these: Mapping[str, _WatchedServer], those: Mapping[str, _WatchedServer]
) -> list[_WatchedServer]:
    """Servers of the first whose exporter is not in the second."""
    kept = {id(watched.exporter) for watched in those.values()}
    return [watched for watched in these.values() if id(watched.exporter) not in kept]


def _stop(servers: Sequence[_WatchedServer]) -> None:
    for watched in servers:
        watched.exporter.end()  # all at once, since each takes a moment
    for watched in servers:
        watched.exporter.stop()
