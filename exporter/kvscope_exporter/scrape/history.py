"""Changes from one page to the next.

Bounded by the engines of one page: whatever the last page did not have is forgotten.
"""

from typing import NamedTuple

from kvscope_exporter.scrape.engines import Engine

Place = tuple[Engine, int]
"""An engine and a row of its table."""


class _Count(NamedTuple):
    value: float
    moved: float


class _Difference(NamedTuple):
    value: float
    minuend: float


class History:
    def __init__(self) -> None:
        self._counts: dict[Place, _Count] = {}
        self._former_counts: dict[Place, _Count] = {}
        self._differences: dict[Place, _Difference] = {}
        self._former_differences: dict[Place, _Difference] = {}

    def next_page(self) -> None:
        """Call before each page."""
        self._former_counts, self._counts = self._counts, {}
        self._former_differences, self._differences = self._differences, {}

    def last_moved(self, place: Place, count: float, now: float) -> float:
        """When a count was first seen with its value: it last moved no later than that."""
        former = self._former_counts.get(place)
        moved = former.moved if former is not None and former.value == count else now
        self._counts[place] = _Count(count, moved)
        return moved

    def never_falling(self, place: Place, difference: float, minuend: float) -> float:
        """The difference of two counters, which can fall for a moment while only one has moved.

        A falling counter means a restart, but only if the minuend falls as well.
        """
        former = self._former_differences.get(place)
        if former is not None and minuend >= former.minuend:
            difference = max(difference, former.value)
        self._differences[place] = _Difference(difference, minuend)
        return difference
