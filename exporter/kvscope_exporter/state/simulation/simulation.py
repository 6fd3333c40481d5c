"""Simulated pools of one engine: their hits, and whether these agree with the engine's own."""

import threading
from array import array
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from kvscope_events.events import EngineEvent, PoolCreated, PoolSnapshot, PrefixLookup
from kvscope_exporter.state.cache.curve import Curve, Point, Slots
from kvscope_exporter.state.simulation.budget import Budget
from kvscope_exporter.state.simulation.follower import Follower
from kvscope_exporter.state.simulation.groups import layers_of
from kvscope_exporter.state.simulation.roots import Roots, Sample

SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
SAME = SCALES.index(1)
MOST_BLOCKS = 1 << 20
"""Limit for all pools together, some 100 bytes a block; the largest are left out beyond it."""
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
_RETAINING = len(SCALES) + 1
"""Place in `Totals.hit_blocks` of the pool that keeps every window and state."""
REMEMBERED_POOLS = 16
"""Sizes of the pool of computed blocks after which the older half counts for less."""


class Totals(NamedTuple):
    """Counts up to some moment."""

    queried_blocks: int
    compared_blocks: int
    """Those of them that were simulated."""
    difference_blocks: int
    """By which the pool of the present size found more of these than the engine."""
    error_blocks: int
    """The same regardless of sign, summed over lookups; where a share of the prompts is simulated,
    each counts as often as that is of all."""
    hit_blocks: "array[int]"
    """By pool: each of SCALES, the infinite one, and the one that keeps every window and state.
    Where a share is simulated: what the engine found, plus what the pool found more than that of
    the present size, as many times."""


class Simulation:
    """One thread takes events; any other may read."""

    def __init__(self, budget: Budget) -> None:
        self.usable_blocks = 0
        """Size of the real pool; 0: its state is not known."""
        self._lock = threading.Lock()  # of the counts, held for microseconds
        self._follower: Follower | None = None
        self._block_size = 0
        self._scales: tuple[float, ...] = ()
        self._places: list[int] = []  # of each pool in `Totals.hit_blocks`
        self._capacities: list[int] = []
        self._totals = Totals(0, 0, 0, 0, array("q", bytes(8 * (_RETAINING + 1))))
        self._shown = self._totals.hit_blocks[:]
        self._pool: PoolCreated | None = None  # the real one, empty
        self._keeps_all = False  # the real one, each window and state
        self._budget = budget
        self._roots: Roots[bytes] = Roots()
        self._window = 0  # of the roots, at which sizes were last adapted
        self._computed = [0, 0]  # blocks that were not found: of all prompts, of the sample's
        self._sample: Sample | None = None  # None: every prompt, and what held blocks before
        self._weight = 1.0
        """Blocks for which a simulated one stands."""
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

    @property
    def share(self) -> float:
        """The share of roots that is simulated."""
        return 1.0 if self._sample is None else self._budget.share

    def begin(self, event: PoolCreated | PoolSnapshot) -> None:
        """A pool is there, empty or with all that it holds; the counters go on."""
        self._pool = PoolCreated(
            event.num_blocks,
            event.block_size,
            event.bytes_per_block,
            event.reserved,
            groups=event.groups,
            retention=event.retention,
        )
        is_new = isinstance(event, PoolCreated) or not (any(event.ref_counts) or event.lru)
        share = self._budget.share
        if share < 1:
            event = self._pool  # whose content is part of the sample is not known
        self._begin(event, None if share == 1 else Sample(self._roots, share), is_new)

    def _begin(
        self, event: PoolCreated | PoolSnapshot, sample: Sample | None, is_new: bool
    ) -> None:
        """is_new: the real pool holds nothing either."""
        usable = event.num_blocks - event.reserved
        capacities: list[int] = []
        scales: list[float] = []
        for scale in SCALES:
            size = int(scale * usable)
            if scale <= 1 or sum(capacities) + size <= MOST_BLOCKS:
                capacities.append(size)
                scales.append(scale)
        endless = max(ENDLESS_BLOCKS, capacities[-1])
        self._computed = [0, 0]
        sizes = self._sampled(capacities)
        layers = layers_of(event.groups, event.retention)
        keeps_all = all(kind.keeps_all for kind in layers)
        retaining = 0 if keeps_all else sizes[SAME]
        follower = Follower(event, [*sizes, endless], self._found, retaining)
        with self._lock:
            self._follower, self._block_size = follower, event.block_size
            self._sample, self._keeps_all = sample, keeps_all
            self.usable_blocks = usable
            self._scales, self._capacities = (*scales, inf), [*capacities, endless]
            self._places = [*map(_place, self._scales), *([_RETAINING] if retaining else [])]
            self._slots = Slots(SLOT_NS, KEEP_NS)
            self._began_ns = self._time_ns
            known = 1 if sample is None else 0  # the largest scale whose content is known
            self._doubt_ns = [
                self._time_ns if is_new or scale <= known else NEVER for scale in self._scales
            ]
            if retaining:
                self._doubt_ns.append(self._time_ns if is_new else NEVER)

    def _sampled(self, capacities: Sequence[int]) -> list[int]:
        """Sizes of pools for the sample: its share of the content, and all blocks above the roots.

        What it really computed is a better measure than the share of roots, which differ.
        """
        shared = self._roots.num_shared
        every, sampled = self._computed
        prior = capacities[SAME]  # as if that much had been divided as it should
        share = (self._budget.share * prior + sampled) / max(1, prior + every)
        if every > REMEMBERED_POOLS * prior:
            self._computed = [every // 2, sampled // 2]
        self._weight = 1 / share
        return [min(size, int(share * size + (1 - share) * shared)) for size in capacities]

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
            if isinstance(event, PrefixLookup) and not event.resumed:
                self._roots.learn(event.hashes)
            if self._sample is None:
                self._follower.take(event)
                return
            takes = self._sample.takes(event)
            if isinstance(event, PrefixLookup) and not event.resumed:
                if self._roots.window:  # otherwise what is shared is not known
                    computed = len(event.hashes) - event.hit_blocks
                    self._computed[0] += computed
                    self._computed[1] += computed if takes else 0
                if not takes:
                    self._count(event, 0, 0, [event.hit_blocks] * len(self._places))
            if takes:
                self._follower.take(event)

    def at(self, time_ns: int) -> None:
        """Set the time of the events that follow, on the producer's clock."""
        self._time_ns = time_ns
        if self._follower is None or self._pool is None:
            return
        if self._budget.at(time_ns, self.usable_blocks):
            self._begin(self._pool, Sample(self._roots, self._budget.share), is_new=False)
        elif self._sample is not None and self._window != self._roots.window:
            self._window = self._roots.window
            sizes = self._sampled(self._capacities[:-1])
            for coordinator, size in zip(self._follower.pools, sizes, strict=False):
                coordinator.pool.resize(size)
            if self._places[-1] == _RETAINING:
                self._follower.pools[-1].pool.resize(sizes[SAME])

    def spend(self, spent_ns: int) -> None:
        """CPU time that was taken for all this."""
        self._budget.spend(spent_ns)

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
        compared = change.compared_blocks
        return compared >= MIN_QUERIED and abs(change.difference_blocks) <= AGREE_RATIO * compared

    def hit_blocks(self) -> dict[str, int]:
        """By scale, while they agree; "inf": had nothing ever been lost."""
        if not self.agrees():
            return {}
        with self._lock:
            since = self._time_ns - AGREE_NS
            # An estimate from a share may fall for a moment, which a counter must not.
            self._shown = array("q", map(max, self._shown, self._totals.hit_blocks))
            return {
                f"{scale:g}": self._shown[_place(scale)]
                for scale, doubt_ns in zip(self._scales, self._doubt_ns, strict=False)
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
                    hit_blocks=min(max(0, change.hit_blocks[_place(scale)]), change.queried_blocks),
                    loaded_blocks=0,
                    is_lower_bound=doubt_ns > begin_ns,
                    known_seconds=None if doubt_ns == NEVER else max(0, now_ns - doubt_ns) / 1e9,
                )
                for scale, capacity, doubt_ns in zip(
                    self._scales, self._capacities, self._doubt_ns, strict=False
                )
                if scale != inf or doubt_ns != NEVER
            ]
            # A pool that keeps them all is simulated once, at its present size.
            place = SAME if self._keeps_all else _RETAINING
            retains = self._doubt_ns[self._places.index(place)] <= begin_ns
        return Curve(
            seconds=max(0, now_ns - begin_ns) / 1e9,
            queried_blocks=change.queried_blocks,
            points=tuple(points),
            retaining_hit_blocks=change.hit_blocks[place] if retains else None,
        )

    def _since(self, time_ns: int) -> Totals:
        """Counts since then, or since the pool is known."""
        now = self._totals
        before = self._slots.since(max(time_ns, self._began_ns) // SLOT_NS * SLOT_NS)
        if before is None:
            before = now
        return Totals(
            now.queried_blocks - before.queried_blocks,
            now.compared_blocks - before.compared_blocks,
            now.difference_blocks - before.difference_blocks,
            now.error_blocks - before.error_blocks,
            array("q", map(int.__sub__, now.hit_blocks, before.hit_blocks)),
        )

    def _found(self, event: PrefixLookup, found: Sequence[int]) -> None:
        """Only first lookups count: what a preempted sequence finds depends on the size."""
        if event.resumed or self._follower is None:
            return
        same = found[SAME]
        base = same if self._sample is None else event.hit_blocks
        hits = [base + round(self._weight * (blocks - same)) for blocks in found]
        self._count(event, len(event.hashes), same - event.hit_blocks, hits)

    def _count(
        self, event: PrefixLookup, compared: int, difference: int, found: Sequence[int]
    ) -> None:
        with self._lock:
            self._slots.before_change(self._time_ns, lambda: self._totals)
            before = self._totals
            hits = before.hit_blocks[:]
            for place, blocks in zip(self._places, found, strict=True):
                hits[place] += blocks
            self._totals = Totals(
                before.queried_blocks + len(event.hashes),
                before.compared_blocks + compared,
                before.difference_blocks + difference,
                before.error_blocks + round(self._weight * abs(difference)),
                hits,
            )
            if compared:
                self._doubt()

    def _doubt(self) -> None:
        """Note the pools whose hits are not what a real one would have, or are from now on."""
        assert self._follower is not None
        for index, coordinator in enumerate(self._follower.pools):
            pool = coordinator.pool
            scale = self._scales[index] if index < len(self._scales) else 1.0
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
