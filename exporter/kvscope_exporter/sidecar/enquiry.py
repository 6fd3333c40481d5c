"""Discovers what the configuration leaves out: a server's KV event streams, its model's name.

Asks in the background, with a time-out, repeatedly: servers start after their sidecar, and restart.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from kvscope_events.throttle import HOUR_NS, Throttle
from kvscope_events.vocabulary import ServerKind
from kvscope_events.wire.endpoint import EndpointError
from kvscope_exporter.fetch.error import FetchError
from kvscope_exporter.scrape import PageReader
from kvscope_exporter.sources.kv_events import KvEventsSource
from kvscope_exporter.sources.kv_events.discovery import (
    PATHS,
    NoStreams,
    Stream,
    read_streams,
)
from kvscope_exporter.targets.exporter import Exporter, Watcher
from kvscope_exporter.targets.target import Target

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0
"""Seconds between two questions, doubled each time without an answer."""
STOP_SECONDS = 1.0

logger = logging.getLogger(__name__)

Fetch = Callable[[str], bytes]
"""The document at a path of the server's base URL. Raises FetchError."""
Make = Callable[[ServerKind, Stream], Target]


class Enquiry(Watcher):
    """A watcher of one exporter, which reads the page independently."""

    def __init__(
        self,
        exporter: Exporter,
        reader: PageReader,
        url: str,
        *,
        fetch: Fetch | None,
        make: Make,
    ) -> None:
        """fetch: None: the streams are configured, and only the model's name is looked up."""
        super().__init__("kvscope-enquiry")
        self._exporter = exporter
        self._reader = reader
        self._url = url
        self._fetch = fetch
        self._make = make
        self._streams: list[Stream] | None = None
        self._targets: list[Target] = []
        self._throttle = Throttle(period_ns=HOUR_NS)
        self._lock = threading.Lock()

    def stop(self, seconds: float | None = STOP_SECONDS) -> None:
        with self._lock:  # no target is added from here on
            self.end()
        super().stop(seconds)

    def ask(self) -> bool:
        """Ask once for everything unknown; True if nothing is missing."""
        reading = self._reader.read()
        kind = self._reader.kind
        if kind is None or not reading.is_up:
            return False
        found = self._fetch is None or self._look_for_streams(kind)
        named = self._name([model for model, _ in reading.engines])
        return found and named

    def _run(self) -> None:
        pause = FIRST_SECONDS
        while not self._stopping.is_set():
            try:
                known = self.ask()
            except Exception:
                logger.exception("%s: asking the server failed: a bug", self._url)
                known = False
            pause = LONGEST_SECONDS if known else min(2 * pause, LONGEST_SECONDS)
            self._stopping.wait(pause)

    def _look_for_streams(self, kind: ServerKind) -> bool:
        assert self._fetch is not None
        if kind not in PATHS:
            self._tell(f"a {kind} does not say where it publishes KV events, if it does")
            return True
        try:
            streams = read_streams(kind, self._fetch(PATHS[kind]), self._url)
        except FetchError as error:
            self._tell(f"{PATHS[kind]} {error}: its KV events are not read")
            return False
        except NoStreams as error:
            self._tell(str(error))
            return False
        if streams != self._streams:
            self._replace(kind, streams)
        return True

    def _replace(self, kind: ServerKind, streams: list[Stream]) -> None:
        for target in self._targets:
            self._exporter.remove(target)
        self._streams, self._targets = streams, []
        for stream in streams:
            try:
                target = self._make(kind, stream)
            except EndpointError as error:
                self._tell(str(error))
                continue
            with self._lock:
                if self._stopping.is_set():
                    target.source.close()
                    return
                self._targets.append(target)
                self._exporter.add(target)
            logger.info(
                "%s: KV events of engine %s at %s", self._url, stream.engine, stream.endpoint
            )

    def _name(self, models: Sequence[str]) -> bool:
        """Give streams the page's label, if it has only one."""
        unnamed = [
            target.source
            for target in self._exporter.targets
            if isinstance(target.source, KvEventsSource) and not target.source.model_name
        ]
        names = {model for model in models if model}
        if unnamed and len(names) == 1:
            name = names.pop()
            for source in unnamed:
                source.model_name = name
            return True
        return not unnamed

    def _tell(self, problem: str) -> None:
        if self._throttle.allow(problem):
            logger.warning("%s: %s", self._url, problem)
