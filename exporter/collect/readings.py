"""Families from servers' own pages: those without events, or that a front end knows better."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from exporter.catalogue import metric
from exporter.clock import Clock
from exporter.collect.families import NO_ENGINE, Families
from exporter.readings import PageReader, PageState
from exporter.readings.engines import Engine
from exporter.readings.mapping import EngineReading

MAX_THREADS = 16
"""Pages of one server that are read at the same time."""
FrontEnd = dict[Engine, dict[str, frozenset[tuple[str, ...]]]]
"""Families by engine that come from its front end, with the labels of their series."""
Told = Mapping[Engine, frozenset[str]]
"""Families, by their names in OpenMetrics, that come from an engine's events."""


class Readings:
    """The pages of one server; an engine's family comes from the first page that has it.

    A family that the front end knows better than the engine behind it stays the front end's once it
    was there: a histogram must not change its source, and with it its meaning, when a page fails.
    """

    def __init__(self, readers: Sequence[PageReader], clock: Clock) -> None:
        self.readers = readers
        self.front_end: FrontEnd = {}
        self._clock = clock
        self._of_endpoint: dict[str, Families] = {}
        self._of_engine: dict[Engine, Families] = {}

    def read(self, *, is_ready: bool) -> Sequence[PageState]:
        """Reads every page, at the same time; returns within the longest of their time-outs.

        is_ready: an engine takes requests, so its server's page should be available.
        """
        if len(self.readers) < 2:
            pages = [reader.state(is_ready=is_ready) for reader in self.readers]
        else:
            with ThreadPoolExecutor(min(len(self.readers), MAX_THREADS)) as pool:
                read = partial(PageReader.state, is_ready=is_ready)
                pages = list(pool.map(read, self.readers))
        for reader, page in zip(self.readers, pages, strict=True):
            for engine, reading in page.reading.engines.items():
                known = {
                    metric(name).family: frozenset(keys)
                    for name, keys in reader.front_end.items()
                    if name in reading.families
                }
                if known:
                    self.front_end.setdefault(engine, {}).update(known)
        return pages

    def beside(self, engine: Engine, families: Iterable[Family]) -> Iterator[Family]:
        """An engine's families from its events, without those that come from its front end."""
        of_front_end = self.front_end.get(engine, {})
        for family in families:
            taken = of_front_end.get(family.name)
            if taken is None:
                yield family
                continue
            left = [sample for sample in family.samples if _key(sample) not in taken]
            if left:
                family.samples = left
                yield family

    def collect(
        self, pages: Sequence[PageState], told: Told, is_elsewhere: Callable[[Engine], bool]
    ) -> Iterator[Family]:
        """Families of these pages, which were just read.

        is_elsewhere: whether an engine is on the page of another host, and must not count twice.
        """
        shown: set[tuple[Engine, str]] = set()
        former, self._of_engine = self._of_engine, {}
        self.front_end = {e: known for e, known in self.front_end.items() if e in told}
        for page in pages:
            if page.is_retired:
                continue
            if page.is_awaited:
                yield from _about(page, self._maker_of(page.endpoint))
            for engine, engine_reading in page.reading.engines.items():
                if engine not in told and is_elsewhere(engine):
                    continue
                maker = former.get(engine) or self._of_engine.get(engine) or self._maker(engine)
                self._of_engine[engine] = maker
                of_events = told.get(engine, frozenset()) - self.front_end.get(engine, {}).keys()
                for family in _families(maker, engine_reading):
                    if family.name in of_events or (engine, family.name) in shown:
                        continue
                    shown.add((engine, family.name))
                    yield family

    def _maker_of(self, endpoint: str) -> Families:
        constants = {"source": "page", "endpoint": endpoint}
        return self._of_endpoint.setdefault(endpoint, Families(constants, self._clock))

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


def _about(page: PageState, families: Families) -> Iterator[Family]:
    yield families.table("kvscope_source_up", {NO_ENGINE: page.reading.is_up})
    if page.last_success_ns is not None:
        age, read = families.age(page.last_success_ns), families.wall(page.last_success_ns)
        yield families.table("kvscope_source_last_message_age_seconds", {NO_ENGINE: age})
        yield families.table("kvscope_source_last_message_timestamp_seconds", {NO_ENGINE: read})
    counts: dict[tuple[str, ...], float] = {
        (*NO_ENGINE, kind): count for kind, count in page.errors.items()
    }
    yield families.table("kvscope_page_errors_total", counts)


def _families(maker: Families, reading: EngineReading) -> Iterator[Family]:
    for name, values in reading.values.items():
        yield maker.table(name, values)
    for name, buckets in reading.histograms.items():
        yield maker.observed(name, buckets.counts, buckets.total)
