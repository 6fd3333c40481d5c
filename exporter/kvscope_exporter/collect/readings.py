"""Families from servers' own pages: those without events, or that a front end knows better."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.families import NO_ENGINE, Families
from kvscope_exporter.collect.origins import Origins, ReportedFamilies
from kvscope_exporter.scrape import PageReader, PageState
from kvscope_exporter.scrape.engines import Engine
from kvscope_exporter.scrape.mapping import EngineReading

MAX_THREADS = 16
"""Pages of one server that are read at the same time."""


class Readings:
    """The pages of one server; an engine's family comes from the first page that has it."""

    def __init__(self, readers: Sequence[PageReader], clock: Clock) -> None:
        self.readers = readers
        self._clock = clock
        self._origins = Origins()
        self._of_endpoint: dict[str, Families] = {}
        self._of_engine: dict[Engine, Families] = {}

    def read(self, *, is_ready: bool) -> Sequence[PageState]:
        """Reads every page, at the same time; returns within the longest of their time-outs.

        is_ready: an engine takes requests, so its server's page should be available.
        """
        if len(self.readers) < 2:
            return [reader.state(is_ready=is_ready) for reader in self.readers]
        with ThreadPoolExecutor(min(len(self.readers), MAX_THREADS)) as pool:
            return list(pool.map(partial(PageReader.state, is_ready=is_ready), self.readers))

    def decide(
        self, pages: Sequence[PageState], told: Mapping[Engine, ReportedFamilies]
    ) -> Origins:
        """Settle where each count comes from, for what `beside` and `collect` then give."""
        now_ns = self._clock.now().monotonic_ns
        self._origins.decide(self.readers, pages, told, now_ns)
        return self._origins

    def beside(self, engine: Engine, families: Iterable[Family]) -> Iterator[Family]:
        """An engine's families from its events, without what comes from its server's page."""
        without = self._origins.not_of_events.get(engine, {})
        for family in families:
            taken = without.get(family.name)
            if taken is None:
                yield family
                continue
            left = [sample for sample in family.samples if taken and _key(sample) not in taken]
            if left:
                family.samples = left
                yield family

    def collect(
        self,
        pages: Sequence[PageState],
        told: Mapping[Engine, ReportedFamilies],
        is_elsewhere: Callable[[Engine], bool],
    ) -> Iterator[Family]:
        """Families of these pages, for which `decide` was called.

        is_elsewhere: whether an engine is on the page of another host, and must not count twice.
        """
        shown: set[tuple[Engine, str]] = set()
        former, self._of_engine = self._of_engine, {}
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
                told_here = told.get(engine, ReportedFamilies()).families
                without = told_here - self._origins.not_of_events.get(engine, {}).keys()
                without |= self._origins.not_of_page.get(engine, frozenset())
                for family in _families(maker, engine_reading):
                    if family.name in without or (engine, family.name) in shown:
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
        age = families.age(page.last_success_ns)
        yield families.table("kvscope_source_last_message_age_seconds", {NO_ENGINE: age})
    counts: dict[tuple[str, ...], float] = {
        (*NO_ENGINE, kind): count for kind, count in page.errors.items()
    }
    yield families.table("kvscope_page_errors_total", counts)


def _families(maker: Families, reading: EngineReading) -> Iterator[Family]:
    for name, values in reading.values.items():
        yield maker.table(name, values)
    for name, buckets in reading.histograms.items():
        yield maker.observed(name, buckets.counts, buckets.total)
