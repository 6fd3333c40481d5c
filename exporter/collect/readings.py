"""Families from servers' own pages: what no event has told, under the engine's own labels."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from prometheus_client.core import Metric as Family

from exporter.clock import Clock
from exporter.collect.families import Families
from exporter.readings import PageReader, Reading
from exporter.readings.engines import Engine
from exporter.readings.mapping import EngineReading

MAX_THREADS = 16
"""Pages of one server that are read at the same time."""
Told = Mapping[Engine, frozenset[str]]
"""Families, by their names in OpenMetrics, that an engine's events tell."""


class Readings:
    """The pages of one server; an engine's family comes from the first page that has it."""

    def __init__(self, readers: Sequence[PageReader], clock: Clock) -> None:
        self.readers = readers
        self._clock = clock
        self._of_reader = [
            Families({"source": "page", "endpoint": reader.endpoint}, clock) for reader in readers
        ]
        self._of_engine: dict[Engine, Families] = {}

    def collect(self, told: Told) -> Iterator[Family]:
        """Reads every page, at the same time; returns within the longest of their time-outs."""
        shown: set[tuple[Engine, str]] = set()
        former, self._of_engine = self._of_engine, {}
        pages = zip(self.readers, self._of_reader, self._read(), strict=True)
        for reader, families, reading in pages:
            if reader.is_retired:
                continue
            yield from _about(reader, families, reading.is_up)
            for engine, engine_reading in reading.engines.items():
                maker = former.get(engine) or self._of_engine.get(engine) or self._maker(engine)
                self._of_engine[engine] = maker
                for family in _families(maker, engine_reading):
                    if family.name in told.get(engine, ()) or (engine, family.name) in shown:
                        continue
                    shown.add((engine, family.name))
                    yield family

    def _read(self) -> list[Reading]:
        if len(self.readers) < 2:
            return [reader.read() for reader in self.readers]
        with ThreadPoolExecutor(min(len(self.readers), MAX_THREADS)) as pool:
            return list(pool.map(PageReader.read, self.readers))

    def _maker(self, engine: Engine) -> Families:
        model_name, number = engine
        return Families({"model_name": model_name, "engine": number}, self._clock)


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
