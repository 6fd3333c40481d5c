"""The source of each count on a page: an engine's events, or its server's own page.

The two count from different moments and in different buckets, so a count that changed its source
would go back or jump. It stays with the source that gave it first, and is absent while that one
does not give it, until the server has been started again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.catalogue import CATALOGUE, metric
from kvscope_exporter.scrape import PageReader, PageState, front_end_of
from kvscope_exporter.scrape.engines import Engine
from kvscope_exporter.scrape.mapping import EngineReading

PATIENCE_NS = 30_000_000_000
"""Wait for the other source before the only one that is there is taken: a sidecar that starts
beside a running server has read one a moment before the other."""
MAX_ENGINES = 2048
"""Engines that are remembered, with those that are gone; the longest unseen is forgotten."""

Series = frozenset[tuple[str, ...]]
"""Series of a family by the values of their labels beyond those of the engine; empty: all."""
BySeries = dict[Engine, dict[str, Series]]
ByFamily = dict[Engine, frozenset[str]]
"""Both by the families' names in OpenMetrics."""

_ALL: Series = frozenset()
COUNTED = frozenset(
    row.family for row in CATALOGUE if row.events and row.kind not in ("gauge", "info")
)
"""Families that only grow, of those that events can provide."""
_STARTED = "kvscope_server_start_time_seconds"


class ReportedFamilies(NamedTuple):
    """Families that the events of one engine provide."""

    families: frozenset[str] = frozenset()
    """Shown or not."""
    sessions: frozenset[str] = frozenset()
    """Sessions of its producers that are heard now."""
    server: ServerKind | None = None

    def __or__(self, other: "ReportedFamilies") -> "ReportedFamilies":
        return ReportedFamilies(
            self.families | other.families,
            self.sessions | other.sessions,
            self.server or other.server,
        )


@dataclass(slots=True)
class _Engine:
    of_page: dict[str, Series] = field(default_factory=dict)
    of_events: set[str] = field(default_factory=set)
    since_ns: int | None = None
    """Since when both its sources should be there."""
    sessions: frozenset[str] = frozenset()
    """When the page was last read."""
    counts: dict[tuple[str, ...], float] = field(default_factory=dict)
    """The last values of the page."""


class Origins:
    """The sources of the counts of one server; decided once for each page."""

    def __init__(self) -> None:
        self.not_of_events: BySeries = {}
        """Series that are not shown from events: they are the page's, or may turn out to be."""
        self.not_of_page: ByFamily = {}
        """Families that are not shown from the page: they are the events', or may turn out to be,
        though the events may not provide them now."""
        self._engines: dict[Engine, _Engine] = {}

    def decide(
        self,
        readers: Sequence[PageReader],
        pages: Sequence[PageState],
        told: Mapping[Engine, ReportedFamilies],
        now_ns: int,
    ) -> None:
        """For pages that were just read, one of each reader."""
        both = [each for each in zip(readers, pages, strict=True) if not each[1].is_retired]
        self.not_of_events, self.not_of_page = {}, {}
        read: dict[Engine, EngineReading] = {}
        for _, page in both:
            for engine, reading in page.reading.engines.items():
                read.setdefault(engine, reading)
        for engine in dict.fromkeys([*read, *told]):
            known = self._engines[engine] = self._engines.pop(engine, _Engine())
            heard, values = told.get(engine), read.get(engine)
            if values is not None:
                _note_page(known, values, heard)
            if known.since_ns is None and any(page.is_awaited for _, page in both):
                known.since_ns = now_ns
            self._decide(engine, known, heard, values, both, now_ns)
        while len(self._engines) > MAX_ENGINES:
            del self._engines[next(iter(self._engines))]

    def _decide(
        self,
        engine: Engine,
        known: _Engine,
        heard: ReportedFamilies | None,
        reading: EngineReading | None,
        both: Sequence[tuple[PageReader, PageState]],
        now_ns: int,
    ) -> None:
        server = None if heard is None else heard.server
        front_end = {
            family: series
            for reader, _ in both
            for family, series in front_end_of(reader.kind or server).items()
        }
        on_page = COUNTED & _families(reading)
        in_events = frozenset() if heard is None else COUNTED & heard.families
        is_patient = known.since_ns is None or now_ns - known.since_ns < PATIENCE_NS
        waits_for_page = is_patient and any(not page.reading.is_up for _, page in both)
        waits_for_events = is_patient and any(reader.is_beside_events for reader, _ in both)
        undecided: dict[str, Series] = {}
        for family in (on_page | in_events) - known.of_events - known.of_page.keys():
            if family in front_end and family in on_page:
                known.of_page[family] = front_end[family]
            elif family in front_end and waits_for_page:
                undecided[family] = front_end[family]
            elif family in in_events:
                if heard is not None and heard.sessions:
                    known.of_events.add(family)
            elif heard is None and waits_for_events:
                undecided[family] = _ALL
            else:
                known.of_page[family] = _ALL
        if not_of_events := known.of_page | undecided:
            self.not_of_events[engine] = not_of_events
        if not_of_page := known.of_events | undecided.keys():
            self.not_of_page[engine] = frozenset(not_of_page)


def _note_page(known: _Engine, reading: EngineReading, heard: ReportedFamilies | None) -> None:
    """A server that was started again counts from the beginning, and so may another source.

    Where only its front end was, the engine's events go on, and what counts stays the same.
    """
    counts = dict(_counts_of(reading))
    before, known.counts = known.counts, known.counts | counts
    sessions = frozenset[str]() if heard is None else heard.sessions
    if any(_is_anew(place, before.get(place), count) for place, count in counts.items()):
        known.counts = counts
        if not sessions or sessions != known.sessions:
            known.of_page.clear()
            known.of_events.clear()
            known.since_ns = None
    known.sessions = sessions or known.sessions


def _is_anew(place: tuple[str, ...], before: float | None, now: float) -> bool:
    if before is None:
        return False
    return now > before if place == (_STARTED,) else now < before


def _counts_of(reading: EngineReading) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, values in reading.values.items():
        if name == _STARTED or metric(name).kind == "counter":
            for key, value in values.items():
                yield (name, *key), value
    for name, buckets in reading.histograms.items():
        yield (name,), buckets.counts[-1][1]


def _families(reading: EngineReading | None) -> frozenset[str]:
    return frozenset(() if reading is None else (metric(name).family for name in reading.families))
