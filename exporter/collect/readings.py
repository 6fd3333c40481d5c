"""Families from servers' own pages: those without events, or that a front end knows better."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from exporter.catalogue import metric
from exporter.clock import Clock
from exporter.collect.families import Families
from exporter.readings import PageReader, Reading
from exporter.readings.engines import Engine
from exporter.readings.mapping import EngineReading

MAX_THREADS = 16
"""Pages of one server that are read at the same time."""
Told = Mapping[Engine, frozenset[str]]
"""Families, by their names in OpenMetrics, that come from an engine's events."""


class Readings:
    """The pages of one server; an engine's family comes from the first page that has it.

    A family that the front end knows better than the engine behind it stays the front end's once it
    was there: a histogram must not change its source, and with it its meaning, when a page fails.
    """

    def __init__(self, readers: Sequence[PageReader], clock: Clock) -> None:
        self.readers = readers
        self._clock = clock
        self._of_reader = [
            Families({"source": "page", "endpoint": reader.endpoint}, clock) for reader in readers
        ]
        self._of_engine: dict[Engine, Families] = {}
        self._front_end: dict[Engine, dict[str, frozenset[tuple[str, ...]]]] = {}

    def read(self, *, is_ready: bool) -> list[Reading]:
        """Reads every page, at the same time; returns within the longest of their time-outs.

        is_ready: an engine takes requests, so its server's page should be available.
        """
        if len(self.readers) < 2:
            pages = [reader.read(is_ready=is_ready) for reader in self.readers]
        else:
            with ThreadPoolExecutor(min(len(self.readers), MAX_THREADS)) as pool:
                read = partial(PageReader.read, is_ready=is_ready)
                pages = list(pool.map(read, self.readers))
        for reader, page in zip(self.readers, pages, strict=True):
            for engine, reading in page.engines.items():
                known = {
                    metric(name).family: frozenset(keys)
                    for name, keys in reader.front_end.items()
                    if name in reading.families
                }
                if known:
                    self._front_end.setdefault(engine, {}).update(known)
        return pages

    def beside(self, engine: Engine, families: Iterable[Family]) -> Iterator[Family]:
        """An engine's families from its events, without those that come from its front end."""
        of_front_end = self._front_end.get(engine, {})
        for family in families:
            taken = of_front_end.get(family.name)
            if taken is None:
                yield family
                continue
            left = [sample for sample in family.samples if _key(sample) not in taken]
            if left:
                family.samples = left
                yield family

    def collect(self, pages: Sequence[Reading], told: Told) -> Iterator[Family]:
        """Families of these pages, one of each reader."""
        shown: set[tuple[Engine, str]] = set()
        former, self._of_engine = self._of_engine, {}
        self._front_end = {e: known for e, known in self._front_end.items() if e in told}
        read = zip(self.readers, self._of_reader, pages, strict=True)
        for reader, families, reading in read:
            if reader.is_retired:
                continue
            if reader.is_awaited:
                yield from _about(reader, families, reading.is_up)
            for engine, engine_reading in reading.engines.items():
                maker = former.get(engine) or self._of_engine.get(engine) or self._maker(engine)
                self._of_engine[engine] = maker
                of_events = told.get(engine, frozenset()) - self._front_end.get(engine, {}).keys()
                for family in _families(maker, engine_reading):
                    if family.name in of_events or (engine, family.name) in shown:
                        continue
                    shown.add((engine, family.name))
                    yield family

    def _maker(self, engine: Engine) -> Families:
        model_name, number = engine
        return Families({"model_name": model_name, "engine": number}, self._clock)


def _key(sample: Sample) -> tuple[str, ...]:
    """Values of a series' labels beyond those of its engine."""
    return tuple(
        value
        for label, value in sample.labels.items()
        if label not in ("model_name", "engine", "le")
    )


def _about(reader: PageReader, families: Families, is_up: bool) -> Iterator[Family]:
    yield families.table("kvscope_source_up", {_NO_ENGINE: is_up})
    if reader.last_success_ns is not None:
        read = families.wall(reader.last_success_ns)
        yield families.table("kvscope_source_last_message_timestamp_seconds", {_NO_ENGINE: read})
    counts: dict[tuple[str, ...], float] = {
        (*_NO_ENGINE, kind): count for kind, count in reader.errors.items()
    }
    yield families.table("kvscope_page_errors_total", counts)


_NO_ENGINE = ("", "")


def _families(maker: Families, reading: EngineReading) -> Iterator[Family]:
    for name, values in reading.values.items():
        yield maker.table(name, values)
    for name, buckets in reading.histograms.items():
        yield maker.observed(name, buckets.counts, buckets.total)
