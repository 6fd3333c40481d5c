"""Hits of the prefix cache in pools of other sizes, counted from the lookups as they come.

Only first lookups count: a preempted sequence looks up what it has just lost, and how often that
happens depends on the size.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf

from kvscope_events.events import BlockHash, PoolCreated, PoolSnapshot, PrefixLookup
from kvscope_exporter.state.cache.blocks import Blocks, ResidentNames
from kvscope_exporter.state.cache.curve import SCALES, Curve, Grid, Point, Slots, Totals
from kvscope_exporter.state.cache.depths import Depths, LookupDepths
from kvscope_exporter.state.cache.evicted import EvictedNames
from kvscope_exporter.state.cache.run_stack import Segment
from kvscope_exporter.state.cache.self_check import Objection, SelfCheck

SLOT_NS = 15 * 10**9
KEEP_NS = 3600 * 10**9
"""The longest window that can be requested, apart from everything since the start."""
_FOR_EVER = 1 << 63
_COUNTED = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)


class WhatIf(Depths):
    """Names evicted before a snapshot are not known: larger sizes are known again once the pool has
    handed out that many blocks. Until then only the known part of their hits is counted.
    """

    def __init__(
        self,
        blocks: Blocks,
        resident: ResidentNames,
        evicted: EvictedNames,
        now_ns: Callable[[], int],
    ) -> None:
        """now_ns: on the producer's clock."""
        super().__init__(blocks, resident)
        self.queried_blocks = 0
        """Full blocks of first lookups that could have been found, while the state was known."""
        self.error_blocks = 0
        """Blocks that the prediction for the present size got wrong, by lookup."""
        self._evicted = evicted
        self._now_ns = now_ns
        self._grid = Grid(0, 0)
        self._hits_before = [0] * len(SCALES)  # of the pool's former sizes, and before gaps
        self._seen_before = 0
        self._slots = Slots[Totals](SLOT_NS, KEEP_NS)
        self._began_ns = 0
        self._reach = 0  # sizes up to this one are known
        self._doubt_ns: list[int] = []  # by size: hits before this time are lower bounds
        self._saw_all = True
        self.self_check = SelfCheck()

    @property
    def objection(self) -> Objection | None:
        """The reason why the sizes are not shown although the state is known."""
        return self.self_check.objection(self._now_ns())

    @property
    def hit_blocks(self) -> dict[str, int]:
        """By scale, those that are known now; "inf": had nothing ever been lost."""
        if not self.known or self.objection is not None:
            return {}
        hits, known = self._grid.hit_blocks, {}
        for scale in _COUNTED:
            index = SCALES.index(scale)
            if index < len(hits) and self._doubt_ns[index] != _FOR_EVER:
                known[f"{scale:g}"] = self._hits_before[index] + hits[index]
        if self._evicted.forgotten.is_complete:
            known["inf"] = self._seen_before + self._grid.seen_blocks
        return known

    def curve(self, window_seconds: float | None, now_ns: int | None = None) -> Curve | None:
        """The hits by size in a window that ends now, at most an hour; None: since the start.

        now_ns: on the producer's clock; None: when the last batch was sent. A window is up to 15 s
        shorter than requested, and begins with the pool, or after the last gap, at the earliest.
        The result is None while the state is not known, or the check fails.
        """
        if not self.known or self.objection is not None:
            return None
        now_ns = self._now_ns() if now_ns is None else now_ns
        begin_ns, now = self._began_ns, self._grid.totals
        before: Totals | None = None
        if window_seconds is not None:
            slot = -(-(now_ns - int(window_seconds * 1e9)) // SLOT_NS)
            if slot * SLOT_NS > begin_ns:
                begin_ns = slot * SLOT_NS
                before = self._slots.since(begin_ns) or now
        change = now if before is None else now.minus(before)
        points = [
            Point(
                scale=scale,
                capacity_blocks=capacity,
                queried_blocks=change.queried_blocks,
                hit_blocks=hits,
                loaded_blocks=loaded,
                is_lower_bound=doubt_ns > begin_ns,
                known_seconds=None if doubt_ns == _FOR_EVER else _seconds(now_ns - doubt_ns),
            )
            for scale, capacity, hits, loaded, doubt_ns in zip(
                SCALES,
                self._grid.capacities,
                change.hit_blocks,
                change.loaded_blocks,
                self._doubt_ns,
                strict=False,
            )
        ]
        if self._evicted.forgotten.is_complete:
            points.append(
                Point(
                    scale=inf,
                    capacity_blocks=None,
                    queried_blocks=change.queried_blocks,
                    hit_blocks=change.seen_blocks,
                    loaded_blocks=change.seen_loaded_blocks,
                    is_lower_bound=not self._saw_all,
                    known_seconds=_seconds(now_ns - self._began_ns) if self._saw_all else None,
                )
            )
        return Curve(
            seconds=_seconds(now_ns - begin_ns),
            queried_blocks=change.queried_blocks,
            points=tuple(points),
            cached_blocks=change.cached_blocks,
        )

    def on_gap(self) -> None:
        super().on_gap()
        self._saw_all = False

    def begin(self, event: PoolCreated | PoolSnapshot) -> None:
        """A pool was created, empty, or a snapshot came with its content.

        If the state was unknown before, windows restart, so that none has time without lookups
        counted.
        """
        self.self_check.drops_last = event.drops_last
        super().begin(event)
        if self.known and isinstance(event, PoolCreated):
            self._reached(self._grid.capacities[-1])

    def join(self, usable: int, idle: Iterable[BlockHash]) -> None:
        self._saw_all = False
        super().join(usable, idle)
        self._doubt_ns = [
            _FOR_EVER if capacity > usable else doubt_ns
            for capacity, doubt_ns in zip(self._grid.capacities, self._doubt_ns, strict=True)
        ]
        self._reached(usable)

    def _start(self, usable: int) -> None:
        goes_on = self.known and usable == self.usable_blocks
        super()._start(usable)
        if not goes_on:
            self._restart()
        self._reach = 0

    def count(
        self, event: PrefixLookup, looked: LookupDepths, loaded: int = 0, waited: int = 0
    ) -> list[Segment]:
        """Count a lookup; waited: see `SelfCheck`.

        loaded: blocks behind the hits that came from elsewhere, and so were not computed. Returns,
        for the computed blocks that a larger pool would have held, by how many blocks the pool is
        too small for the first of consecutive ones, and how many there are.
        """
        held, distances, found, reach = looked
        self._reached(reach)
        capacity, predicted, too_small = self.usable_blocks, held, []
        elsewhere: list[Segment] = []
        end, place = event.hit_blocks + loaded, held
        for base, count in distances:
            hits = min(count, max(0, capacity - base + 1))
            predicted += hits
            # [0, first) were found, [first, last) loaded, and the rest is computed.
            first = max(0, min(count, event.hit_blocks - place))
            last = max(0, min(count, end - place))
            if first < last:
                elsewhere.append((base + first, last - first))
            beyond = max(hits, last)
            if beyond < count:
                too_small.append((base + beyond - capacity, count - beyond))
            place += count
        if not event.resumed:
            path, now_ns = event.hashes, self._now_ns()
            self._slots.before_change(now_ns, lambda: self._grid.totals)
            seen = max(0, self._seen(path, found) - self._drops_last)
            self._grid.count(len(path), held, seen, distances)
            if loaded:
                self._grid.count_loaded(max(0, min(seen, end) - event.hit_blocks), elsewhere)
            excess = predicted - event.hit_blocks
            self.self_check.look_up(
                now_ns, len(path), excess, distances, waited, self._grid.capacities
            )
            self.queried_blocks += len(path)
            self.error_blocks += abs(excess)
        return too_small

    def cache(self, names: Sequence[BlockHash], time_ns: int) -> None:
        if not self.known:
            return
        if time_ns >= self._slots.next_ns:
            self._slots.before_change(time_ns, lambda: self._grid.totals)
        self._grid.cached_blocks += len(names)
        super().cache(names, time_ns)

    def reset(self) -> None:
        super().reset()
        if self.known:
            self._reached(self._grid.capacities[-1])

    def _restart(self) -> None:
        """Begin all windows now; the counters continue."""
        for index, hits in enumerate(self._grid.hit_blocks):
            self._hits_before[index] += hits
        self._seen_before += self._grid.seen_blocks
        self._grid = Grid(self.usable_blocks, self.horizon)
        self._slots = Slots(SLOT_NS, KEEP_NS)
        self._began_ns = self._now_ns()
        self._doubt_ns = [self._began_ns] * len(self._grid.capacities)

    def _reached(self, blocks: int) -> None:
        """This many blocks lie above all unknown names."""
        if blocks <= self._reach:
            return
        self._reach = blocks
        doubt_ns = self._doubt_ns
        for index, capacity in enumerate(self._grid.capacities):
            if capacity <= blocks and doubt_ns[index] == _FOR_EVER:
                doubt_ns[index] = self._now_ns()

    def _seen(self, path: Sequence[BlockHash], start: int) -> int:
        """The number of leading blocks that are known at all; those before `start` are."""
        names, evicted = self._resident.names, self._evicted
        forgotten = evicted.forgotten
        for index in range(start, len(path)):
            name = path[index]
            if name not in names and name not in evicted and name not in forgotten:
                return index
        return len(path)


def _seconds(interval_ns: int) -> float:
    return max(0, interval_ns) / 1e9
