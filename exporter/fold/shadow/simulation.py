"""Simulated pools of one engine: their hits, and whether these agree with the engine's own."""

import threading
from array import array
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from exporter.fold.cache.curve import Curve, Point, Slots
from exporter.fold.shadow.follower import Follower
from kvscope_events.events import EngineEvent, PoolCreated, PoolSnapshot, PrefixLookup

SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
SAME = SCALES.index(1)
MOST_BLOCKS = 1 << 20
"""Limit for all pools together, some 200 bytes a block; the largest are left out beyond it."""
ENDLESS_BLOCKS = 1 << 17
"""Size of the pool that passes for infinite until it has to evict."""
SLOT_NS = 15 * 10**9
KEEP_NS = 3600 * 10**9
"""The longest window that can be asked for, but for everything since the start."""
AGREE_NS = 300 * 10**9
"""Window over which the pool of the present size must find what the engine finds."""
AGREE_RATIO = 0.01
"""Largest difference, of the blocks looked up."""
MIN_QUERIED = 100
"""Fewest blocks looked up in a window that show whether they agree."""
NEVER = 1 << 63


class Totals(NamedTuple):
    """Counts up to some moment."""

    queried_blocks: int
    found_blocks: int
    """By the engine itself."""
    error_blocks: int
    """By which the pool of the present size and the engine differed, summed over lookups."""
    hit_blocks: "array[int]"
    """By pool."""


class Simulation:
    """One thread takes events; any other may read."""

    def __init__(self) -> None:
        self.usable_blocks = 0
        """Size of the real pool; 0: its state is not known."""
        self._lock = threading.Lock()  # of the counts, held for microseconds
        self._follower: Follower | None = None
        self._block_size = 0
        self._scales: tuple[float, ...] = ()
        self._capacities: list[int] = []
        self._totals = Totals(0, 0, 0, array("q", bytes(8 * (len(SCALES) + 1))))
        self._slots = Slots[Totals](SLOT_NS, KEEP_NS)
        self._time_ns = self._began_ns = 0
        self._doubt_ns: list[int] = []
        """By pool: hits before this time may be wrong; NEVER: they all may."""

    @property
    def num_pending(self) -> int:
        """Sequences that have begun and not ended."""
        return 0 if self._follower is None else self._follower.num_pending

    @property
    def totals(self) -> Totals:
        with self._lock:
            return self._totals

    def begin(self, event: PoolCreated | PoolSnapshot) -> None:
        """A pool is there, empty or with all that it holds; the counters go on."""
        usable = event.num_blocks - event.reserved
        capacities: list[int] = []
        scales: list[float] = []
        for scale in SCALES:
            size = int(scale * usable)
            if scale <= 1 or sum(capacities) + size <= MOST_BLOCKS:
                capacities.append(size)
                scales.append(scale)
        capacities.append(max(ENDLESS_BLOCKS, capacities[-1]))
        is_new = isinstance(event, PoolCreated) or not (any(event.ref_counts) or event.lru)
        follower = Follower(event, capacities, self._found)
        with self._lock:
            self._follower, self._block_size = follower, event.block_size
            self.usable_blocks = usable
            self._scales, self._capacities = (*scales, inf), capacities
            self._slots = Slots(SLOT_NS, KEEP_NS)
            self._began_ns = self._time_ns
            self._doubt_ns = [
                self._time_ns if is_new or scale <= 1 else NEVER for scale in self._scales
            ]

    def lose(self) -> None:
        """The state is not known until the next pool or snapshot."""
        with self._lock:
            self._follower, self.usable_blocks = None, 0

    def take(self, event: EngineEvent) -> None:
        """The next event of the engine."""
        if isinstance(event, PoolCreated):
            self.begin(event)
        elif isinstance(event, PoolSnapshot):
            if self._follower is None:  # otherwise another reader asked for it
                self.begin(event)
        elif self._follower is not None:
            self._follower.take(event)

    def at(self, time_ns: int) -> None:
        """Set the time of the events that follow, on the producer's clock."""
        self._time_ns = time_ns

    def settle(self) -> None:
        """Apply what waits for the end of a step."""
        if self._follower is not None:
            self._follower.settle()

    def check(self) -> None:
        """Assert every invariant; O(blocks)."""
        if self._follower is not None:
            self._follower.check()

    def agrees(self) -> bool:
        """Whether the pool of the present size lately found what the engine found."""
        with self._lock:
            if not self.usable_blocks:
                return False
            change = self._since(self._time_ns - AGREE_NS)
        queried = change.queried_blocks
        difference = abs(change.hit_blocks[SAME] - change.found_blocks)
        return queried >= MIN_QUERIED and difference <= AGREE_RATIO * queried

    def hit_blocks(self) -> dict[str, int]:
        """By scale, while they agree; "inf": had nothing ever been lost."""
        if not self.agrees():
            return {}
        with self._lock:
            since = self._time_ns - AGREE_NS
            return {
                f"{scale:g}": self._totals.hit_blocks[_place(scale)]
                for scale, doubt_ns in zip(self._scales, self._doubt_ns, strict=True)
                if doubt_ns <= max(since, self._began_ns)
            }

    def curve(self, window_seconds: float | None, now_ns: int | None = None) -> Curve | None:
        """See `WhatIf.curve`; None, too, while the present size does not agree with the engine."""
        if not self.agrees():
            return None
        with self._lock:
            now_ns = self._time_ns if now_ns is None else now_ns
            begin_ns = self._began_ns
            if window_seconds is not None:
                slot = -(-(now_ns - int(window_seconds * 1e9)) // SLOT_NS)
                begin_ns = max(begin_ns, slot * SLOT_NS)
            change = self._since(begin_ns)
            points = [
                Point(
                    scale=scale,
                    capacity_blocks=None if scale == inf else capacity,
                    queried_blocks=change.queried_blocks,
                    hit_blocks=change.hit_blocks[_place(scale)],
                    loaded_blocks=0,
                    is_lower_bound=doubt_ns > begin_ns,
                    known_seconds=None if doubt_ns == NEVER else max(0, now_ns - doubt_ns) / 1e9,
                )
                for scale, capacity, doubt_ns in zip(
                    self._scales, self._capacities, self._doubt_ns, strict=True
                )
                if scale != inf or doubt_ns != NEVER
            ]
        seconds = max(0, now_ns - begin_ns) / 1e9
        return Curve(seconds=seconds, queried_blocks=change.queried_blocks, points=tuple(points))

    def _since(self, time_ns: int) -> Totals:
        """Counts since then, or since the pool is known."""
        now = self._totals
        before = self._slots.since(max(time_ns, self._began_ns) // SLOT_NS * SLOT_NS)
        if before is None:
            before = now
        return Totals(
            now.queried_blocks - before.queried_blocks,
            now.found_blocks - before.found_blocks,
            now.error_blocks - before.error_blocks,
            array("q", map(int.__sub__, now.hit_blocks, before.hit_blocks)),
        )

    def _found(self, event: PrefixLookup, found: Sequence[int]) -> None:
        """Only first lookups count: what a preempted sequence finds depends on the size."""
        if event.resumed or self._follower is None:
            return
        with self._lock:
            self._slots.before_change(self._time_ns, lambda: self._totals)
            before = self._totals
            hits = before.hit_blocks[:]
            for scale, blocks in zip(self._scales, found, strict=True):
                hits[_place(scale)] += blocks
            same = found[SAME]
            self._totals = Totals(
                before.queried_blocks + len(event.hashes),
                before.found_blocks + event.hit_blocks,
                before.error_blocks + abs(same - event.hit_blocks),
                hits,
            )
            self._doubt()

    def _doubt(self) -> None:
        """Note the pools whose hits are not what a real one would have, or are from now on."""
        assert self._follower is not None
        for index, coordinator in enumerate(self._follower.pools):
            pool, scale = coordinator.pool, self._scales[index]
            if self._doubt_ns[index] == NEVER:
                if scale != inf and pool.handed_out >= pool.capacity:
                    self._doubt_ns[index] = self._time_ns
            elif scale == inf and pool.has_evicted:
                self._doubt_ns[index] = NEVER
            elif scale < 1 and pool.has_owed:
                self._doubt_ns[index] = self._time_ns
            pool.has_owed = False


def _place(scale: float) -> int:
    return len(SCALES) if scale == inf else SCALES.index(scale)
