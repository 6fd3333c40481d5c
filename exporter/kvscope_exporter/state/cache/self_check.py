"""Whether the sizes of a counted pool may be shown: such an engine need not evict in the order of
the releases, and may renew what waiting requests ask for.

A request that waits has its blocks renewed in the meantime, so they are found at each size that
held them when it came; they have sunk by no more blocks than were taken from the pool since then.
Hits between these two depths are in doubt, size by size.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from kvscope_events.events import Hello
from kvscope_exporter.state.cache.curve import SCALES, Slots
from kvscope_exporter.state.cache.run_stack import Segment

SLOT_NS = 15 * 10**9
CHECK_NS = 300 * 10**9
"""The time over which the prediction for the present size is compared with the engine's hits."""
MOST_DIFFERENCE = 0.01
"""Share of the blocks looked up in that time, for the difference and for the hits in doubt."""
Objection = Literal["policy", "order", "queue"]
"""A policy that is known to evict in another order than that of the releases; another order, by the
hits at the present size; waiting requests."""


class _Totals(NamedTuple):
    queried: int
    excess: int
    doubtful: "array[int]"


class SelfCheck:
    """Sums over first lookups; does nothing in pools whose prediction is exact."""

    def __init__(self) -> None:
        self.is_counted = False
        self.drops_last = False
        """See `PoolCreated.drops_last`; what is left out is followed nearly, not exactly."""
        self._queried = 0
        self._excess = 0  # predicted, and not found; below 0: the other way round
        self._doubtful = [0] * len(SCALES)
        self._slots = Slots[_Totals](SLOT_NS, CHECK_NS)
        self._is_lru = True

    def begin(self, event: Hello, *, is_counted: bool) -> None:
        """An engine introduced itself."""
        self.is_counted = is_counted
        self._is_lru = event.eviction_policy in (None, "lru")

    @property
    def is_on(self) -> bool:
        return self.is_counted or self.drops_last

    def look_up(
        self,
        now_ns: int,
        queried: int,
        excess: int,
        distances: Iterable[Segment],
        waited: int,
        capacities: Sequence[int],
    ) -> None:
        """excess: blocks predicted for the present size beyond those found. waited: blocks taken
        from the pool since the request came. capacities: ascending, those of SCALES."""
        if not self.is_on:
            return
        self._slots.before_change(now_ns, self._totals)
        self._queried += queried
        self._excess += excess
        if waited:
            for first, count in distances:
                self._doubt(first, count, waited, capacities)

    def objection(self, now_ns: int) -> Objection | None:
        """The reason why other sizes must not be shown; None: they may be shown."""
        if not self.is_on:
            return None
        if not self._is_lru:  # it may agree at one size, and differ by far at another
            return "policy"
        before = self._slots.since(now_ns - CHECK_NS)
        queried, excess, doubtful = before or (0, 0, self._doubtful[:0])
        most = MOST_DIFFERENCE * (self._queried - queried)
        if abs(self._excess - excess) > most:
            return "order"
        earlier = [*doubtful, *[0] * (len(SCALES) - len(doubtful))]
        if max(map(int.__sub__, self._doubtful, earlier)) > most:
            return "queue"
        return None

    def _doubt(self, first: int, count: int, waited: int, capacities: Sequence[int]) -> None:
        """Blocks at the distances [first, first + count) were at most `waited` less deep before."""
        least = max(1, first - waited)
        for index in range(bisect_left(capacities, least), len(capacities)):
            capacity = capacities[index]
            certain = max(0, capacity - first + 1)
            if certain >= count:
                return
            self._doubtful[index] += min(count, capacity - least + 1) - certain

    def _totals(self) -> _Totals:
        return _Totals(self._queried, self._excess, array("q", self._doubtful))
