"""Reads a server's own page when ours is rendered.

Never raises: errors are counted by kind, and the page's families are absent meanwhile.
"""

import logging
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.catalogue.observation import PAGE_ERROR_KINDS
from kvscope_exporter.clock import Clock
from kvscope_exporter.faults import Faults
from kvscope_exporter.fetch.error import FetchError
from kvscope_exporter.fetch.fetch import Fetcher, MergedHeaders, Reply
from kvscope_exporter.scrape.detect import (
    OWN_PAGE,
    OWN_PAGE_REMEDY,
    detect,
    is_declared,
    may_be_idle,
    why_unread,
)
from kvscope_exporter.scrape.engines import Engine
from kvscope_exporter.scrape.mapping import EngineReading, PageMapper
from kvscope_exporter.scrape.tables import TABLES
from kvscope_exporter.scrape.tls import Tls

DEFAULT_TIMEOUT = 2.5
"""Total seconds for a page. Prometheus waits four seconds for ours (`scrape_timeout` of the shipped
jobs): a server that hangs must not take the page with it that says so."""
MAX_BYTES = 32 << 20
"""A Ray node with 30 replicas has about 10 MB."""
MAX_TEXT_BYTES = 2 * MAX_BYTES
"""The same as text in memory, where one character of an alphabet makes each of them take two bytes,
and one of its symbols four."""
READ_SECONDS = 1.0
"""Further seconds to read a page that came at the last moment."""
MAX_AGE_NS = 1_000_000_000
"""Age up to which a reading is reused, so that two scrapers do not double the load."""
_ACCEPT = "text/plain;version=0.0.4"
"""Not OpenMetrics, which costs more to read and adds nothing that we need."""
_FORMATS = ("text/plain", "application/openmetrics-text")
_OF_GATEWAYS = (502, 503, 504)
"""Statuses with which a proxy answers for a server that is not there."""

_OF_FOUR_BYTES = re.compile(rb"[\xf0-\xf4]")
_CONTRADICTORY = "series contradict each other"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """A page as last read."""

    is_up: bool
    answers: bool
    """Whether the server answered, though perhaps not with a page that can be read."""
    engines: Mapping[Engine, EngineReading] = field(default_factory=dict)
    """Empty while the page cannot be read: a dead engine's gauges are not served forever."""


@dataclass(frozen=True, slots=True)
class PageState:
    """All that our page shows of one page of a server."""

    endpoint: str
    is_retired: bool
    is_awaited: bool
    last_success_ns: int | None
    """On the reader's monotonic clock."""
    errors: Mapping[str, int]
    reading: Reading


class _RejectedPage(Exception):
    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class PageReader:
    """One page of one server; read from any thread."""

    def __init__(
        self,
        url: str,
        kind: ServerKind | Literal["auto"] = "auto",
        *,
        headers: Mapping[str, str] | None = None,
        tls: Tls | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        clock: Clock | None = None,
        model_name: str = "",
        is_beside_events: bool = False,
    ) -> None:
        """headers: read again for every page, so that a token may change. model_name: for a server
        whose page does not have it. is_beside_events: its engines report when they are ready, and
        until then a missing page is not a fault.

        Raises ValueError for an invalid URL, or a kind whose pages are not read; OSError for a file
        of `tls`.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url {url!r}: expected http://HOST:PORT/PATH")
        if kind != "auto" and kind not in TABLES:
            raise ValueError(f"kind {kind!r}: expected auto or one of {', '.join(TABLES)}")
        self.kind: ServerKind | None = None if kind == "auto" else kind
        """The kind of server; None until a page has shown it."""
        self.url = url
        host = parts.netloc.rpartition("@")[2]
        self.endpoint = f"{parts.scheme}://{host}{parts.path}"
        """The URL without a password or a query, which may hold a secret."""
        self.last_success_ns: int | None = None
        """When a page was last read, on this process's monotonic clock."""
        self.problem: str | None = None
        """The reason why the last attempt failed."""
        self.is_beside_events = is_beside_events
        self._is_awaited = not is_beside_events
        self._clock = clock or Clock()
        self._faults = Faults(self.endpoint, PAGE_ERROR_KINDS, self._clock.monotonic_ns)
        self._timeout = timeout
        self._model_name = model_name
        tls = tls or Tls()
        self._client = tls.client(url, timeout)
        given = MergedHeaders({"Accept": _ACCEPT, "User-Agent": "kvscope"}, headers or {})
        self._fetcher = Fetcher(
            self._client, url, headers=given, max_bytes=MAX_BYTES, server_name=tls.server_name
        )
        self._is_fixed = kind != "auto"
        self._mappers = self._mappers_of(self.kind)
        self._lock = threading.Lock()
        self._reading = Reading(False, False)
        self._retired = False
        self._read_ns: int | None = None
        self._read_until = 0.0

    @property
    def errors(self) -> Mapping[str, int]:
        """Counts by kind; all of `PAGE_ERROR_KINDS` are present from the start."""
        return self._faults.counts

    @property
    def is_up(self) -> bool:
        """Whether the page could be read at the last attempt."""
        return self._reading.is_up

    @property
    def is_of_kvscope(self) -> bool:
        """Whether the last attempt failed because the page is a kvscope's own."""
        return self.problem is not None and self.problem.startswith(OWN_PAGE)

    @property
    def answers(self) -> bool:
        """Whether the server answered at the last attempt."""
        return self._reading.answers

    @property
    def is_retired(self) -> bool:
        """Whether its server ended on purpose and has not answered since."""
        return self._retired

    def retire(self) -> bool:
        """Regard its server as ended on purpose; False, without effect, while it answers."""
        if self.read().answers:
            return False
        self._retired = True
        return True

    @property
    def is_awaited(self) -> bool:
        """Whether an unreadable page is a fault: once its engines are ready, or it was read."""
        return self._is_awaited or self.last_success_ns is not None

    def read(self, *, is_ready: bool = False) -> Reading:
        """The page as it is now, at most `MAX_AGE_NS` old. Returns within the time-out.

        is_ready: an engine behind it takes requests.
        """
        with self._lock:
            self._is_awaited = self._is_awaited or is_ready
            now_ns = self._clock.monotonic_ns()
            if self._read_ns is None or now_ns - self._read_ns >= MAX_AGE_NS:
                self._reading = self._read()
                self._retired = self._retired and not self._reading.answers
                self._read_ns = self._clock.monotonic_ns()
            return self._reading

    def state(self, *, is_ready: bool = False) -> PageState:
        """The page as it is now, as `read` gives it, with what is known of its reading."""
        reading = self.read(is_ready=is_ready)
        return PageState(
            self.endpoint,
            self._retired,
            self.is_awaited,
            self.last_success_ns,
            dict(self.errors),
            reading,
        )

    def close(self) -> None:
        """Release the client; a later reading fails and is counted."""
        self._client.close()

    def _read(self) -> Reading:
        self._read_until = time.monotonic() + self._timeout + READ_SECONDS
        try:
            # The document is held by none of our frames: while its text is read, it is gone.
            engines = self._engines(_text_of(self._fetcher.fetch(self._timeout)))
        except FetchError as error:
            self.problem = str(error)
            if self.is_awaited:
                self._faults.count(error.kind, str(error))
            return Reading(False, error.answered and error.status not in _OF_GATEWAYS)
        except _RejectedPage as error:
            self.problem = str(error)
            self._faults.count(error.kind, str(error))
        except Exception as error:
            self.problem = repr(error)
            self._faults.count("bug", repr(error))
            logger.debug("while reading %s", self.endpoint, exc_info=True)
        else:
            self.problem = None
            self.last_success_ns = self._clock.monotonic_ns()
            return Reading(True, True, engines)
        return Reading(False, True)

    def _engines(self, text: str) -> dict[Engine, EngineReading]:
        problems: list[str] = []
        engines = self._mapped(text, problems)
        if not engines and not self._is_fixed:
            found = detect(text)
            if found == "kvscope":
                raise _RejectedPage("unknown_server", f"{OWN_PAGE}: {OWN_PAGE_REMEDY}")
            if found is not None and found in TABLES and found != self.kind:
                self.kind = found
                self._mappers = self._mappers_of(found)
                engines = self._mapped(text, problems)
        if not engines and not may_be_idle(self.kind, text):
            # A server of which nothing is shown is not called ready.
            is_known = self.kind is not None or is_declared(text)
            kind = "nothing_read" if is_known else "unknown_server"
            raise _RejectedPage(kind, why_unread(text, problems))
        return engines

    def _mapped(self, text: str, problems: list[str]) -> dict[Engine, EngineReading]:
        now = self._clock.monotonic_ns() / 1e9
        engines: dict[Engine, EngineReading] = {}
        for mapper in self._mappers:
            page = mapper.read(
                text,
                now=now,
                model_name=self._model_name,
                seconds=self._read_until - time.monotonic(),
            )
            if page.is_cut:
                raise _RejectedPage("too_large", "has too many series, or takes too long to read")
            count = self._faults.count
            count("malformed", "lines cannot be used", page.num_malformed)
            if not page.is_page and not is_declared(text):
                raise _RejectedPage("not_metrics", "has no sample")
            problems += page.problems
            said = f"series cannot be true together: {problems[0]}" if problems else _CONTRADICTORY
            count("contradictory", said, page.num_contradictory)
            count("engines", "engines beyond the limit", page.num_refused)
            for engine, reading in page.engines.items():
                engines.setdefault(engine, reading)
        return engines

    def _mappers_of(self, kind: ServerKind | None) -> list[PageMapper]:
        return [] if kind is None else [PageMapper(table) for table in TABLES[kind]]


def _width(body: bytes) -> int:
    """Most bytes that a character of it takes in memory."""
    if body.isascii():
        return 1
    return 4 if _OF_FOUR_BYTES.search(body) else 2


def _text_of(document: Reply) -> str:
    """Raises _Rejected for anything but a complete page."""
    format_ = document.content_type.partition(";")[0].strip().lower()
    if format_ not in _FORMATS:
        raise _RejectedPage("not_metrics", f"answers with {format_[:80]!r}, not a page of metrics")
    if len(document.body) * _width(document.body) > MAX_TEXT_BYTES:
        raise _RejectedPage("too_large", f"takes more than {MAX_TEXT_BYTES >> 20} MiB as text")
    try:
        text = document.body.decode("utf-8-sig")  # it may begin with a byte order mark
    except UnicodeDecodeError as error:
        raise _RejectedPage("malformed", f"is not UTF-8: {error.reason}") from None
    is_ended = text.endswith("# EOF\n") if format_ == _FORMATS[1] else document.is_framed
    if not is_ended:
        raise _RejectedPage("truncated", "is cut short, or does not state its length")
    return text
