"""Hits at every cache size, from the depths at which the looked-up blocks lay.

A block with R referenced blocks and L blocks of the stack above it is resident in a pool of C
blocks if and only if R + L + 1 <= C: its distance is the smallest pool that would still hold it. So
counting distances gives the hits at all sizes at once.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from kvscope_exporter.state.cache.run_stack import Segment

SCALES = (*(step / 16 for step in range(1, 17)), *(1 + step / 8 for step in range(1, 25)))
"""Sizes of a pool as shares of the present one: to 1 by 1/16, to 4 by 1/8."""
SAME = SCALES.index(1)
"""Index of the present size."""


class HitCurve:
    """Exact at every size up to the horizon of the stack; grows with the distinct distances."""

    def __init__(self) -> None:
        self.queried_blocks = 0
        self._held = 0  # found whatever the size
        self._steps: dict[int, int] = {}  # changes of the number of blocks at a distance

    def look_up(
        self, queried: int, held: int, referenced: int, segments: Iterable[Segment]
    ) -> None:
        """Count one lookup.

        queried: blocks of the path. held: its leading blocks that are referenced. referenced: all
        referenced blocks of the pool, before the lookup changes it. segments: blocks that the stack
        had after `held`.
        """
        self.queried_blocks += queried
        self._held += held
        steps = self._steps
        for above, count in segments:
            first = referenced + above + 1
            steps[first] = steps.get(first, 0) + 1
            steps[first + count] = steps.get(first + count, 0) - 1

    def hits_at(self, capacities: Sequence[int]) -> list[int]:
        """Hits so far, had the pool had that many blocks, in the order of `capacities`."""
        bounds = sorted(self._steps)
        # sum(step * (C + 1 - bound)) blocks lie within C, over all bounds <= C.
        steps = [self._steps[bound] for bound in bounds]
        level = [0, *accumulate(steps)]
        weighted = [0, *accumulate(map(int.__mul__, steps, bounds))]
        hits = []
        for capacity in capacities:
            index = bisect_right(bounds, capacity)
            hits.append(self._held + level[index] * (capacity + 1) - weighted[index])
        return hits


class Totals(NamedTuple):
    """A grid's counts up to some moment."""

    queried_blocks: int
    seen_blocks: int
    hit_blocks: "array[int]"
    """By size."""
    loaded_blocks: "array[int]"
    """By size: hits there that really came from elsewhere and so were not computed here."""
    seen_loaded_blocks: int
    """The same for the blocks seen before."""
    cached_blocks: int
    """Blocks that became findable."""

    def minus(self, before: "Totals") -> "Totals":
        """The counts since then."""
        return Totals(
            self.queried_blocks - before.queried_blocks,
            self.seen_blocks - before.seen_blocks,
            array("q", map(int.__sub__, self.hit_blocks, before.hit_blocks)),
            array("q", map(int.__sub__, self.loaded_blocks, before.loaded_blocks)),
            self.seen_loaded_blocks - before.seen_loaded_blocks,
            self.cached_blocks - before.cached_blocks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One size of the pool."""

    scale: float
    """Relative to the present size; infinite: nothing is ever lost, not even by a reset."""
    capacity_blocks: int | None
    """None: infinite."""
    queried_blocks: int
    """Full blocks that might have been found, at every size the same."""
    hit_blocks: int
    loaded_blocks: int
    """The part that came from a tier below the pool or a connector: finding them here saves no
    computing.
    """
    is_lower_bound: bool
    """For a part of the window the content of such a pool was not known yet."""
    known_seconds: float | None
    """Time for which it has been known; None: not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Hits of the same lookups by size, ascending; a size beyond the names kept has no point."""

    seconds: float
    queried_blocks: int
    points: tuple[Point, ...]
    cached_blocks: int | None = None
    """Blocks that became findable in the present pool; None: not counted."""
    retaining_hit_blocks: int | None = None
    """Hits at the present size if every window and state were kept; None: not known."""


class Grid:
    """Counts of lookups at fixed sizes of one pool, in constant memory.

    Sizes that the horizon does not cover are left out.
    """

    def __init__(self, usable_blocks: int, horizon: int, scales: Sequence[float] = SCALES) -> None:
        """scales: shares of `usable_blocks`, ascending."""
        sizes = [int(scale * usable_blocks) for scale in scales]
        self.capacities = [size for size in sizes if size <= horizon]
        self.queried_blocks = 0
        self.held_blocks = 0
        """Hit blocks that were referenced: found whatever the size."""
        self.seen_blocks = 0
        """Leading blocks that had been seen before, hit or not."""
        self.seen_loaded_blocks = 0
        """The part that came from elsewhere."""
        self.cached_blocks = 0
        self._steps = [0] * len(self.capacities)  # hits that the next smaller size lacks
        self._loaded_steps = [0] * len(self.capacities)

    def count(self, queried: int, held: int, seen: int, distances: Iterable[Segment]) -> None:
        """One lookup; distances: of the first of consecutive blocks, and their number."""
        self.queried_blocks += queried
        self.held_blocks += held
        self.seen_blocks += seen
        self._count(self._steps, distances)

    def count_loaded(self, seen: int, distances: Iterable[Segment]) -> None:
        """Blocks of the lookup just counted that came from elsewhere."""
        self.seen_loaded_blocks += seen
        self._count(self._loaded_steps, distances)

    def _count(self, steps: list[int], distances: Iterable[Segment]) -> None:
        capacities = self.capacities
        size = len(capacities)
        for first, count in distances:
            index, counted = bisect_left(capacities, first), 0
            while counted < count and index < size:
                reached = min(count, capacities[index] - first + 1)
                steps[index] += reached - counted
                counted = reached
                index += 1

    @property
    def hit_blocks(self) -> list[int]:
        """By size; never falls."""
        return [self.held_blocks + hits for hits in accumulate(self._steps)]

    @property
    def totals(self) -> Totals:
        """All counts at this moment."""
        loaded = array("q", accumulate(self._loaded_steps))
        return Totals(
            self.queried_blocks,
            self.seen_blocks,
            array("q", self.hit_blocks),
            loaded,
            self.seen_loaded_blocks,
            self.cached_blocks,
        )


T = TypeVar("T")


class Slots(Generic[T]):
    """Values of counters at multiples of a slot, for as long as they may be queried.

    At most `keep_ns / slot_ns` moments and one more; times are on one clock.
    """

    def __init__(self, slot_ns: int, keep_ns: int) -> None:
        self._slot_ns = slot_ns
        self._keep_ns = keep_ns
        self._moments: deque[tuple[int, T]] = deque()
        self.next_ns = 0
        """Before this time `before_change` does nothing: frequent callers look here first."""

    def before_change(self, time_ns: int, read: Callable[[], T]) -> None:
        """Call before a counter changes; `read` is called for the first change in a slot."""
        if time_ns < self.next_ns:
            return
        start_ns = time_ns // self._slot_ns * self._slot_ns
        self.next_ns = start_ns + self._slot_ns
        self._moments.append((start_ns, read()))
        while self._moments[0][0] < time_ns - self._keep_ns:
            self._moments.popleft()

    def since(self, time_ns: int) -> T | None:
        """The value read at `time_ns`, the beginning of a slot; None: no change since then."""
        return next((value for at_ns, value in self._moments if at_ns >= time_ns), None)
