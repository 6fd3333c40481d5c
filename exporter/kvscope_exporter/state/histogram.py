"""A histogram with one exemplar per bucket that can be read at any subset of its bounds."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Exemplar(NamedTuple):
    """An observation whose trace can be looked up."""

    trace_id: str
    value: float
    wall_ns: int  # of the engine; 0: not known


class Bucket(NamedTuple):
    """Observations at or below a bound, all lower ones included."""

    bound: float
    observations: int
    exemplar: Exemplar | None  # of an observation above the bound before


class Histogram:
    """Counts observations by the first bound that is not below them."""

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = (*bounds, float("inf"))
        self.counts = [0] * len(self.bounds)
        self.exemplars: list[Exemplar | None] = [None] * len(self.bounds)
        self.total = 0.0
        """Sum of all observations."""

    def observe(self, value: float, count: int = 1) -> None:
        """Add the same observation `count` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def mark(self, value: float, trace_id: str, wall_ns: int) -> None:
        """Make an observation the exemplar of its bucket."""
        self.exemplars[bisect_left(self.bounds, value)] = Exemplar(trace_id, value, wall_ns)

    def at(self, bounds: Sequence[float]) -> list[Bucket]:
        """The cumulative buckets at `bounds`, all of them bounds of this histogram, and +Inf."""
        buckets = []
        wanted = iter((*bounds, self.bounds[-1]))
        bound = next(wanted)
        count = 0
        newest: Exemplar | None = None
        for own, own_count, exemplar in zip(self.bounds, self.counts, self.exemplars, strict=True):
            count += own_count
            if exemplar is not None and (newest is None or exemplar.wall_ns >= newest.wall_ns):
                newest = exemplar
            if own == bound:
                buckets.append(Bucket(bound, count, newest))
                newest = None
                bound = next(wanted, float("nan"))
        if len(buckets) != len(bounds) + 1:
            raise ValueError(f"{tuple(bounds)} are not all bounds of {self.bounds}")
        return buckets

    def counts_at(self, bounds: Sequence[float]) -> list[int]:
        """Observations up to each of `bounds` and above the one before it, then those above all."""
        upto = [bucket.observations for bucket in self.at(bounds)]
        return [count - before for before, count in pairwise((0, *upto))]
