"""From a page's text to values of our families, by a table; neither fetches nor renders."""

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, isnan

from kvscope_exporter.catalogue import metric
from kvscope_exporter.catalogue.metric import MOST
from kvscope_exporter.scrape.engines import Engine, sort_by_engine
from kvscope_exporter.scrape.history import History, Place
from kvscope_exporter.scrape.labels import LastMoved, PassedHistogram
from kvscope_exporter.scrape.row import Row, Table
from kvscope_exporter.scrape.samples import MAX_SECONDS, SampleParser, Samples
from kvscope_exporter.scrape.value import Series, Unusable, Value

Key = tuple[str, ...]
_MAX_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram with the bounds of the server that observed it."""

    counts: tuple[tuple[float, float], ...]
    """Upper bounds, the last of them infinite, with cumulative counts."""
    total: float


@dataclass(slots=True)
class EngineReading:
    """A page's values for one engine, by our family and the values of its own labels."""

    values: dict[str, dict[Key, float]] = field(default_factory=dict)
    histograms: dict[str, Buckets] = field(default_factory=dict)
    rows: set[int] = field(default_factory=set)
    """Positions in the table of the rows that gave a value."""

    @property
    def families(self) -> set[str]:
        return self.values.keys() | self.histograms.keys()


@dataclass(slots=True)
class PageReading:
    engines: dict[Engine, EngineReading]
    num_malformed: int
    """Lines, or histograms, that could not be used."""
    num_contradictory: int
    """Series that the page has in a form that yields no number."""
    num_refused: int
    """Engines beyond the bound."""
    is_page: bool
    """Whether the text has any samples."""
    problems: list[str] = field(default_factory=list)
    """Some of what could not be used: phrases."""
    is_cut: bool = False
    """Whether it is too much to read; it then has no engines."""


class PageMapper:
    """Reads pages of one server; keeps what stays the same from one page to the next."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._parser = SampleParser(table.names)
        self._counters = frozenset(
            row.family for row in table.rows if metric(row.family).kind == "counter"
        )
        self._keys = [row.key for row in table.rows]
        self._history = History()
        self._now = 0.0

    def read(
        self,
        text: str,
        *,
        now: float,
        model_name: str = "",
        seconds: float = MAX_SECONDS,
    ) -> PageReading:
        """Total: any text gives a reading. now: seconds of a clock that is never set. seconds: that
        are left to read the text."""
        self._now = now
        self._history.next_page()
        samples = self._parser.parse(text, seconds)
        if samples.is_cut:
            return PageReading({}, 0, 0, 0, is_page=True, is_cut=True)
        found = sort_by_engine(samples, self._table.identity, model_name)
        page = PageReading({}, samples.num_malformed, 0, found.num_refused, samples.has_samples)
        for engine, view in found.by_engine.items():
            reading = self._engine(engine, view, page)
            if reading.rows:
                page.engines[engine] = reading
        return page

    def _engine(self, engine: Engine, view: Samples, page: PageReading) -> EngineReading:
        reading = EngineReading()
        unusable: set[tuple[str, Key]] = set()
        for position, row in enumerate(self._table.rows):
            key = self._keys[position]
            if (row.family, key) in unusable or self._has(reading, row, key):
                continue
            try:
                is_there = self._row(view, row, (engine, position), reading)
            except Unusable as error:
                # Another row's definition cannot replace it: the series would jump.
                unusable.add((row.family, key))
                page.num_contradictory += 1
                if len(page.problems) < _MAX_PROBLEMS:
                    page.problems.append(str(error))
                continue
            if is_there:
                reading.rows.add(position)
        page.num_contradictory += _without_excess(reading.values)
        return reading

    def _has(self, reading: EngineReading, row: Row, key: Key) -> bool:
        return row.family in reading.histograms or key in reading.values.get(row.family, ())

    def _row(self, view: Samples, row: Row, place: Place, reading: EngineReading) -> bool:
        if isinstance(row.value, PassedHistogram):
            buckets = _buckets(view, row.value)
            if buckets is not None:
                reading.histograms[row.family] = buckets
            return buckets is not None
        if isinstance(row.value, LastMoved):
            count = row.value.of.read(view)
            if count is None:
                return False
            _check_size(row, count)
            value = self._now - self._history.last_moved(place, count, self._now)
        else:
            read = self._value(view, row, row.value, place)
            if read is None:
                return False
            value = read
        reading.values.setdefault(row.family, {})[self._keys[place[1]]] = value
        return True

    def _value(self, view: Samples, row: Row, value: Value, place: Place) -> float | None:
        """Raises Unusable for impossible values."""
        found = value.read(view)
        if found is None:
            return None
        _check_size(row, found)
        is_counter = row.family in self._counters
        minuend = value.minuend.read(view) if is_counter and value.minuend is not None else None
        if minuend is not None:
            found = self._history.never_falling(place, found, minuend)
            return None if found < 0 else found  # its parts are not counted at the same moment
        declared = metric(row.family)
        # A value computed from several numbers may be off by a fraction.
        is_fraction = declared.counts and isinstance(value, Series) and not found.is_integer()
        if is_fraction or not declared.can_be(found):
            raise Unusable(f"{row.family} cannot be {found:g}")
        return found


def _check_size(row: Row, value: float) -> None:
    """Raises Unusable. A page is not silent about a number that it states as none."""
    if not abs(value) < MOST:
        raise Unusable(f"{row.family} cannot be {value:g}")


def _without_excess(values: dict[str, dict[Key, float]]) -> int:
    """Remove families larger than the one that contains them, and that one; returns how many."""
    excess = [
        (family, container, key)
        for family, found in values.items()
        if (container := values.get(metric(family).within)) is not None
        for key, value in found.items()
        if value > container.get(key, container.get((), inf))
    ]
    for family, container, key in excess:
        del values[family][key]
        container.pop(key if key in container else (), None)
    return len(excess)


def _buckets(view: Samples, passed: PassedHistogram) -> Buckets | None:
    """The sum of the engine's series. Raises Unusable if the parts contradict each other."""
    for name in passed.spellings:
        counts: dict[float, list[float]] = {}
        for labels, value in view.samples((f"{name}_bucket",)):
            bound = _bound(labels.get("le", ""))
            counts.setdefault(bound, []).append(value)
        observed = [value for _, value in view.samples((f"{name}_count",))]
        totals = [value for _, value in view.samples((f"{name}_sum",))]
        if not counts and not observed and not totals:
            continue
        rising = [sum(counts[bound]) for bound in sorted(counts)]
        if (
            {len(totals), *map(len, counts.values())} != {len(observed)}
            or any(low > high for low, high in pairwise([0, *rising]))
            or inf not in counts
            or rising[-1] != sum(observed)
            or not all(0 <= value < MOST for value in (*rising, *totals))
            or any(value % 1 for value in (*rising, *observed))
        ):
            raise Unusable(f"{name} contradicts itself")
        return Buckets(tuple(zip(sorted(counts), rising, strict=True)), sum(totals))
    return None


def _bound(text: str) -> float:
    """Raises Unusable."""
    try:
        bound = float(text)
    except ValueError:
        raise Unusable(f"{text[:40]!r} is not a bucket bound") from None
    if isnan(bound):
        raise Unusable("a bucket without a bound")
    return bound
