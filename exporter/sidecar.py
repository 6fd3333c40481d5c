"""Watches engines in other processes: one page for each server, and its own."""

from collections.abc import Collection, Mapping, Sequence

from exporter.catalogue import DEFAULT_COMPAT
from exporter.clock import Clock
from exporter.exporter import Exporter, check_compat
from exporter.folder import Folder, is_folder
from exporter.gpu import GpuSource
from exporter.machine import Machine
from exporter.sources.recording import SCHEME, RecordingSource
from exporter.sources.source import Source
from exporter.sources.wire import WireSource
from exporter.target import Target


class Sidecar:
    """Servers by name, each with one or more engines, read from their endpoints.

    With one server, `own` is its page. With several, each has a page of its own, since a page
    describes one server, and `own` has only the state of this process.
    """

    def __init__(
        self,
        servers: Mapping[str, Sequence[str]],
        *,
        compat: Collection[str] = DEFAULT_COMPAT,
        gpu: GpuSource | None = None,
        clock: Clock | None = None,
    ) -> None:
        """servers: endpoints by name; `ipc:///DIRECTORY/*` stands for all sockets of a folder.

        Raises EndpointError for one that cannot be read.
        """
        check_compat(compat)
        clock = clock or Clock()
        alone = len(servers) == 1
        machine = Machine(gpu=gpu, only_reported=not alone)
        self._servers: dict[str, Exporter] = {}

        def make(endpoint: str) -> Target:
            return Target(_source(endpoint, clock), compat=compat, clock=clock)

        for name, endpoints in servers.items():
            exporter = Exporter(
                [make(endpoint) for endpoint in endpoints if not is_folder(endpoint)],
                machine=machine,
                clock=clock,
                process=alone,
            )
            self._servers[name] = exporter
            for endpoint in endpoints:
                if is_folder(endpoint):
                    exporter.attach(Folder(endpoint, exporter, make, clock))
        only = next(iter(self._servers.values())) if alone else None
        self.own = only or Exporter([], machine=Machine(), clock=clock)

    def names(self) -> list[str]:
        """The servers, in the order given."""
        return list(self._servers)

    def server(self, name: str) -> Exporter | None:
        """The page of a server, or None where no server has that name."""
        return self._servers.get(name)

    def start(self) -> None:
        """Begin to read; may be called once."""
        for exporter in self._servers.values():
            exporter.start()

    def stop(self) -> None:
        """End all threads; pages can still be rendered."""
        for exporter in self._servers.values():
            exporter.stop()


def _source(endpoint: str, clock: Clock) -> Source:
    if endpoint.startswith(SCHEME):
        return RecordingSource(endpoint, clock)
    return WireSource(endpoint, clock)
