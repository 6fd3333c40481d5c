"""From the configuration of one server to its exporter."""

from collections.abc import Collection

from exporter.clock import Clock
from exporter.configuration import ServerConfig
from exporter.exporter import Exporter
from exporter.sources.recording import SCHEME, RecordingSource
from exporter.sources.source import Source
from exporter.sources.wire import WireSource
from exporter.target import Target


def exporter_of(config: ServerConfig, compat: Collection[str], clock: Clock) -> Exporter:
    """Reads from now on. Raises EndpointError for what cannot be read, and then holds nothing."""
    sources: list[Source] = []
    try:
        for endpoint in config.events:
            sources.append(_source(endpoint, clock))
    except BaseException:
        for source in sources:
            source.close()
        raise
    targets = [Target(source, compat=compat, clock=clock) for source in sources]
    return Exporter(targets, clock=clock, process=False)


def _source(endpoint: str, clock: Clock) -> Source:
    if endpoint.startswith(SCHEME):
        return RecordingSource(endpoint, clock)
    return WireSource(endpoint, clock)
