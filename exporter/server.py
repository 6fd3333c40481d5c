"""From the configuration of one server to its exporter."""

from collections.abc import Collection

from exporter.clock import Clock
from exporter.configuration import ServerConfig
from exporter.exporter import Exporter
from exporter.folder import Folder, is_folder
from exporter.sources.recording import SCHEME, RecordingSource
from exporter.sources.source import Source
from exporter.sources.wire import WireSource
from exporter.target import Target


def exporter_of(config: ServerConfig, compat: Collection[str], clock: Clock) -> Exporter:
    """Reads from now on. Raises EndpointError for what cannot be read, and then holds nothing."""
    exporter = Exporter([], clock=clock, process=False)

    def make(endpoint: str) -> Target:
        return Target(_source(endpoint, clock), compat=compat, clock=clock)

    try:
        for endpoint in config.events:
            if is_folder(endpoint):
                exporter.attach(Folder(endpoint, exporter, make, clock))
            else:
                exporter.add(make(endpoint))
    except BaseException:
        exporter.stop()
        raise
    return exporter


def _source(endpoint: str, clock: Clock) -> Source:
    if endpoint.startswith(SCHEME):
        return RecordingSource(endpoint, clock)
    return WireSource(endpoint, clock)
