"""From the configuration of one server to its exporter."""

from collections.abc import Callable, Collection

from kvscope_events.vocabulary import ServerKind
from kvscope_events.wire.subscriber import WireSubscriber
from kvscope_exporter.clock import Clock
from kvscope_exporter.configuration import ConfigurationError, ServerConfig
from kvscope_exporter.configuration.access import LiveHeaders, tls_of
from kvscope_exporter.configuration.model import FOLDER
from kvscope_exporter.fetch.fetch import Fetcher
from kvscope_exporter.recorder.recorder import Recorder
from kvscope_exporter.scrape import PageReader
from kvscope_exporter.sidecar.enquiry import Enquiry
from kvscope_exporter.sidecar.socket_folder import SocketFolder
from kvscope_exporter.sources.kv_events import KvEventsSource
from kvscope_exporter.sources.kv_events.discovery import MAX_ANSWER_BYTES, Stream
from kvscope_exporter.sources.listener import Listener
from kvscope_exporter.sources.source import Source
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target

MakeListener = Callable[[str], Listener]
"""Makes further listeners for an engine's batches, by the name of its server."""


def exporter_of(
    config: ServerConfig,
    compat: Collection[str],
    clock: Clock,
    listener: MakeListener | None = None,
    recorder: Recorder | None = None,
) -> Exporter:
    """Connects now, reads from `start` on. Raises EndpointError or ConfigurationError for sources
    that cannot be read; it then holds nothing."""
    try:
        return _Builder(config, compat, clock, listener, recorder).build()
    except OSError as error:  # a file of `tls` that has gone since the check
        problem = f"its TLS cannot be set up: {error.strerror or error}"
        raise ConfigurationError(config.name, problem, "put the files back") from None


class _Builder:
    def __init__(
        self,
        config: ServerConfig,
        compat: Collection[str],
        clock: Clock,
        listener: MakeListener | None,
        recorder: Recorder | None,
    ) -> None:
        self._listener = listener
        self._recorder = recorder
        self._config = config
        self._compat = compat
        self._clock = clock

    def build(self) -> Exporter:
        config = self._config
        reader = self._reader()
        readers = [] if reader is None else [reader]
        exporter = Exporter(
            [], readers=readers, clock=self._clock, process=False, recorder=self._recorder
        )
        try:
            for endpoint in config.events:
                if endpoint.endswith(FOLDER):
                    exporter.attach(SocketFolder(endpoint, exporter, self._wire, self._clock))
                else:
                    exporter.add(self._wire(endpoint))
            if config.kv_events != "auto":
                for kv in config.kv_events:
                    assert config.kind != "auto", "checked"
                    stream = Stream(kv.engine, kv.endpoint, kv.replay, kv.topic)
                    exporter.add(self._stream(config.kind, stream, bind=kv.bind))
            if reader is not None and config.kv_events:
                exporter.attach(self._enquiry(exporter, reader))
        except BaseException:
            exporter.stop()
            raise
        return exporter

    def _reader(self) -> PageReader | None:
        config = self._config
        if config.page_url is None:
            return None
        return PageReader(
            config.page_url,
            config.kind,
            headers=LiveHeaders(config.headers),
            tls=tls_of(config.tls),
            timeout=config.timeout,
            clock=self._clock,
            model_name=config.model_name or "",
            is_beside_events=bool(config.events),
        )

    def _enquiry(self, exporter: Exporter, reader: PageReader) -> Enquiry:
        config = self._config
        assert config.url is not None
        base = config.url.rstrip("/")
        fetch = self._fetch(base) if config.kv_events == "auto" else None
        return Enquiry(exporter, reader, base, fetch=fetch, make=self._stream)

    def _fetch(self, base: str) -> Callable[[str], bytes]:
        config = self._config
        tls, headers = tls_of(config.tls), LiveHeaders(config.headers)
        client = tls.client(base, config.timeout)  # holds nothing between two questions

        def fetch(path: str) -> bytes:
            fetcher = Fetcher(
                client,
                base + path,
                headers=headers,
                max_bytes=MAX_ANSWER_BYTES,
                server_name=tls.server_name,
            )
            return fetcher.fetch(config.timeout).body

        return fetch

    def _wire(self, endpoint: str) -> Target:
        listeners = [] if self._listener is None else [self._listener(self._config.name)]
        source = WireSubscriber(endpoint, clock_ns=self._clock.monotonic_ns)
        return Target(
            source,
            compat=self._compat,
            clock=self._clock,
            listeners=listeners,
            recorder=self._recorder,
        )

    def _stream(self, kind: ServerKind, stream: Stream, *, bind: bool = False) -> Target:
        source = KvEventsSource(
            stream.endpoint,
            server=kind,
            engine=stream.engine,
            clock=self._clock,
            replay=stream.replay,
            topic=stream.topic,
            bind=bind,
            model_name=self._config.model_name or "",
        )
        return self._target(source)

    def _target(self, source: Source) -> Target:
        return Target(source, compat=self._compat, clock=self._clock, recorder=self._recorder)
