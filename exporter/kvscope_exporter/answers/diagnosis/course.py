"""An engine's last half hour in slices of ten seconds, as rates and levels."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import add, sub
from typing import Any, NamedTuple

from kvscope_exporter.state.time_parts import NONE
from kvscope_exporter.state.timeline import PERIOD_NS, Counts, Figures, Period, Timeline

SLICE_NS = 10_000_000_000
MOST_SLICES = 180


class Slice(NamedTuple):
    """Ten seconds."""

    sums: Figures
    """Counted within it."""
    levels: Figures
    """At its end."""


class Course:
    """Slices up to now, the oldest first; the first of them may have begun before we watched."""

    def __init__(self, timeline: Timeline, now_ns: int) -> None:
        self.now_ns = now_ns
        self._periods = list(timeline)
        self._times = [period.end_ns for period in self._periods]
        self.restarts_ns = [
            after.end_ns
            for before, after in pairwise(self._periods)
            if before.session != after.session
        ]
        """Ends of the first periods of later sessions."""
        self.slices = self._sliced()

    def begin_ns(self, index: int) -> int:
        """When a slice began."""
        return self.now_ns - (len(self.slices) - index) * SLICE_NS

    def first_ns(self, index: int, count: Callable[[Figures], float]) -> int:
        """Begin of the first period in this slice in which the count is above 0."""
        begin = self.begin_ns(index)
        for end_ns, sums in self._changes(begin, begin + SLICE_NS):
            if count(sums) > 0:
                return max(begin, end_ns - PERIOD_NS)
        return begin

    def total(self, begin: int, end: int, count: Callable[[Figures], float]) -> float:
        """Sum over these slices."""
        return sum(count(each.sums) for each in self.slices[max(0, begin) : end])

    def parts(self, begin: int, end: int, vector: Callable[[Figures], Counts]) -> list[int]:
        """Sums over these slices by part."""
        vectors = [vector(each.sums) for each in self.slices[max(0, begin) : end]]
        return [sum(column) for column in zip(*vectors, strict=True)] if vectors else NONE

    def _sliced(self) -> list[Slice]:
        if not self._periods:
            return []
        watched = (self.now_ns - self._times[0]) // SLICE_NS
        number = min(MOST_SLICES, watched)
        ends = [self.now_ns - later * SLICE_NS for later in range(number, -1, -1)]
        return [self._slice(begin, end) for begin, end in pairwise(ends)]

    def _slice(self, begin: int, end: int) -> Slice:
        before, after = self._last(begin), self._last(end)
        if before.session == after.session:
            return Slice(_less(after.figures, before.figures), after.figures)
        sums = _less(after.figures, after.figures)
        for _, change in self._changes(begin, end):
            sums = _more(sums, change)
        return Slice(sums, after.figures)

    def _last(self, moment: int) -> Period:
        """The last period that had ended by then."""
        return self._periods[bisect_right(self._times, moment) - 1]

    def _changes(self, begin: int, end: int) -> Iterator[tuple[int, Figures]]:
        """Ends of the periods that ended in this time, and what happened in each."""
        first, last = bisect_right(self._times, begin), bisect_right(self._times, end)
        for before, after in pairwise(self._periods[max(0, first - 1) : last]):
            if before.session == after.session:
                yield after.end_ns, _less(after.figures, before.figures)


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """The bound below which that share of the observations lies, between its neighbours by
    proportion. None: nothing was observed."""
    wanted, seen, lower = share * sum(counts), 0.0, 0.0
    if not wanted:
        return None
    for count, bound in zip(counts, (*bounds, bounds[-1]), strict=False):
        if count and seen + count >= wanted:
            return lower + (bound - lower) * (wanted - seen) / count
        seen += count
        lower = bound
    return lower


def _less(later: Figures, earlier: Figures) -> Figures:
    return _combined(later, earlier, sub)


def _more(one: Figures, other: Figures) -> Figures:
    return _combined(one, other, add)


def _combined(one: Figures, other: Figures, by: Callable[[Any, Any], Any]) -> Figures:
    pairs: Iterator[tuple[Any, Any]] = zip(one, other, strict=True)
    return Figures._make(
        tuple(map(by, x, y)) if isinstance(x, tuple) else by(x, y) for x, y in pairs
    )
