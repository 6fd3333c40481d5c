"""Hits of the prefix cache in pools of other sizes, computed from the lookups as they come.

The idle names are kept in the order of their release, evicted ones below those still resident, so
the depth of a looked-up block gives the smallest pool that would hold it (see `curve`). Exact for
engines that evict the oldest release first and release the tail of a sequence first, if neither
arrivals nor running times depend on the hits. Only first lookups count: a preempted sequence looks
up what it has just lost, and how often that happens depends on the size.

A name that a lookup takes out of the stack although the engine did not find it is computed again:
larger pools hold and reference it at once, the present one once it is cached. Until then further
lookups find it at the distance of the first. If its sequence ends before, the name is forgotten.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf

from exporter.fold.cache.blocks import Blocks, Doubles, Resident
from exporter.fold.cache.curve import SCALES, Curve, Grid, Point, Slots, Totals
from exporter.fold.cache.evicted import Evicted, Recomputed
from exporter.fold.cache.run_stack import RunStack, Segment
from exporter.fold.cache.self_check import Objection, SelfCheck
from exporter.fold.capacity import is_plain
from kvscope_events.events import (
    BlockHash,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
)

MOST_SCALE = int(SCALES[-1])
GHOST_NAMES = 1 << 19
"""Maximum number of names kept beyond those that the pool can hold: enough for four times the pool
if it has up to 174,762 blocks."""
SLOT_NS = 15 * 10**9
KEEP_NS = 3600 * 10**9
"""The longest window that can be requested, apart from everything since the start."""
_FOR_EVER = 1 << 63
_COUNTED = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)


class WhatIf:
    """Lost batches make everything unknown until a snapshot, which lists the resident names in
    order.

    Names evicted before a snapshot are not known: larger sizes are known again once the pool has
    handed out that many blocks. Until then only the known part of their hits is counted.
    """

    def __init__(
        self,
        blocks: Blocks,
        resident: Resident,
        evicted: Evicted,
        now_ns: Callable[[], int],
        make_grid: Callable[[int, int], Grid] = Grid,
    ) -> None:
        self.queried_blocks = 0
        """Full blocks of first lookups that could have been found, while the state was known."""
        self.error_blocks = 0
        """Blocks that the prediction for the present size got wrong, by lookup."""
        self.known = False
        """Whether the state is known, and all blocks are of one kind that sees all tokens."""
        self.usable_blocks = 0
        self._blocks = blocks
        self._resident = resident
        self._evicted = evicted
        self._now_ns = now_ns  # on the producer's clock
        self._stack = RunStack()
        self._doubles = Doubles(resident)
        self._recomputed = Recomputed(0)
        self._make_grid = make_grid  # of usable blocks and horizon
        self._grid = Grid(0, 0)
        self._hits_before = [0] * len(SCALES)  # of the pool's former sizes, and before gaps
        self._seen_before = 0
        self._slots = Slots[Totals](SLOT_NS, KEEP_NS)
        self._began_ns = 0
        self._reach = 0  # sizes up to this one are known
        self._doubt_ns: list[int] = []  # by size: hits before this time are lower bounds
        self._saw_all = True
        self._found: tuple[int | None, int] = (None, 0)  # by the last lookup, of idle blocks
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
        self.known = self._saw_all = False

    def begin(self, event: PoolCreated | PoolSnapshot) -> None:
        """A pool was created, empty, or a snapshot came with its content.

        If the state was unknown before, windows restart, so that none has time without lookups
        counted.
        """
        usable = event.num_blocks - event.reserved
        self.self_check.drops_last = event.drops_last
        if not is_plain(event.groups) or usable <= 0:
            self.known = False
            self._stack.clear()
        elif isinstance(event, PoolSnapshot):
            self._doubles.replace(event)
            names = self._blocks.names_of(event.lru[::-1])
            self.join(usable, (n for n in names if not self._doubles.is_referenced(n)))
        else:
            self._doubles.clear()
            self._start(usable)
            self._reached(self._grid.capacities[-1])

    def join(self, usable: int, idle: Iterable[BlockHash]) -> None:
        """Begin in the middle of a pool's life; idle: its names without a reference, the newest
        first."""
        self._saw_all = False
        self._start(usable)
        self._stack.fill(idle)
        self._doubt_ns = [
            _FOR_EVER if capacity > usable else doubt_ns
            for capacity, doubt_ns in zip(self._grid.capacities, self._doubt_ns, strict=True)
        ]
        self._reached(usable)

    def _start(self, usable: int) -> None:
        """With an empty stack, of which nothing is known."""
        goes_on, self.known = self.known, True
        horizon = min(MOST_SCALE * usable, usable + GHOST_NAMES)
        if not goes_on or usable != self.usable_blocks:
            self._restart(usable, horizon)
        self._stack = RunStack(horizon)
        self._recomputed = Recomputed(horizon)
        self._reach = 0

    def look_up(
        self, event: PrefixLookup, referenced: int, loaded: int = 0, waited: int = 0
    ) -> list[Segment]:
        """Called before the lookup changes anything; referenced: number of referenced blocks;
        waited: see `SelfCheck`.

        If contradictory events reference more than the pool has, all of the pool counts. loaded:
        blocks behind the hits that came from elsewhere, and so were not computed. Returns, for the
        computed blocks that a larger pool would have held, by how many blocks the pool is too small
        for the first of consecutive ones, and how many there are.
        """
        if not self.known:
            return []
        path, stack = event.hashes, self._stack
        drops_last = self.self_check.drops_last
        referenced = min(referenced, self.usable_blocks)
        distances: list[Segment] = []
        if referenced + len(stack) > self._reach:
            self._reached(referenced + len(stack))
        held = self._held(path)
        if self._recomputed:
            self._recomputed.end(event.sequence)
            distances = self._recomputed.leading(path, held)
        found = start = held + len(distances)
        for above, count in stack.take(path, start):
            distances.append((referenced + above + 1, count))
            found += count
        self._found = (event.sequence, min(found, event.hit_blocks) - start)
        first = max(start, event.hit_blocks)
        if found > first:
            if drops_last and first == event.hit_blocks and path[first] in self._resident.names:
                stack.push(path[first : first + 1])  # it stays idle, though further down
            flat = [base + i for base, count in distances for i in range(count)]
            self._recomputed.begin(event.sequence, path[first:found], flat[first - held :])
        if drops_last:
            held = self._without_last(held, distances)
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
            self._slots.before_change(self._now_ns(), lambda: self._grid.totals)
            seen = max(0, self._seen(path, found) - drops_last)
            self._grid.count(len(path), held, seen, distances)
            if loaded:
                self._grid.count_loaded(max(0, min(seen, end) - event.hit_blocks), elsewhere)
            excess = predicted - event.hit_blocks
            self.self_check.look_up(
                *(self._now_ns(), len(path), excess, distances, waited),
                self._grid.capacities,
            )
            self.queried_blocks += len(path)
            self.error_blocks += abs(excess)
        return too_small

    def release(self, sequence: int | None, names: Sequence[BlockHash], *, ends: bool) -> None:
        """Blocks of these names lost their last reference; the names are in the order of the
        sequence, which ends with it or not."""
        if not self.known:
            return
        idle = self._doubles.release(names)
        # A name's second block takes up room, but cannot be found.
        self._stack.push(idle, unnamed=len(names) - len(idle))
        if self._recomputed and sequence is not None and ends:
            self._recomputed.end(sequence)

    def share(self, sequence: int | None, blocks: Sequence[int]) -> None:
        """Idle blocks got a reference again."""
        if not self.known:
            return
        if self._doubles or self._found != (sequence, len(blocks)):
            # Not exactly those that the sequence has just looked up.
            names = self._blocks.names_of(blocks)
            self._doubles.share(names)
            self._stack.remove(names)

    def cache(self, names: Sequence[BlockHash], time_ns: int) -> None:
        """Referenced blocks can be found by these names from now on.

        Some may be idle: generated ones, which were never looked up, or those of another block.
        """
        if not self.known:
            return
        if time_ns >= self._slots.next_ns:
            self._slots.before_change(time_ns, lambda: self._grid.totals)
        self._grid.cached_blocks += len(names)
        if self._recomputed:
            self._recomputed.cache(names)
        if self._resident.doubled:
            self._doubles.write(names, self._stack)
        self._stack.remove(names)

    def lose(
        self,
        names: Sequence[BlockHash],
        gone: Sequence[BlockHash],
        *,
        for_room: bool,
        were_referenced: bool = False,
    ) -> None:
        """Blocks lost these names; gone: those that no block has now."""
        if not self.known:
            return
        self._doubles.lose(names, were_referenced=were_referenced)
        if not for_room:  # a larger pool has more room, and nothing else
            self._stack.remove(gone)

    def reset(self) -> None:
        """All idle names are gone, in a pool of any size."""
        if self.known:
            self._stack.clear()
            self._reached(self._grid.capacities[-1])

    def check(self) -> None:
        """Assert every invariant; O(runs² + names)."""
        self._stack.check()
        self._doubles.check()
        self._recomputed.check(self._resident.names)

    def _without_last(self, held: int, distances: list[Segment]) -> int:
        """At every size the last block found there is left out, so a block is a hit where the one
        behind it is found as well. Returns how many are held then; `distances` changes.
        """
        if held:
            return held - 1
        if distances:
            first, count = distances[0]
            distances[:1] = [(first + 1, count - 1)] if count > 1 else []
        return 0

    def _restart(self, usable: int, horizon: int) -> None:
        """Begin all windows now; the counters continue."""
        for index, hits in enumerate(self._grid.hit_blocks):
            self._hits_before[index] += hits
        self._seen_before += self._grid.seen_blocks
        self.usable_blocks = usable
        self._grid = self._make_grid(usable, horizon)
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

    def _held(self, path: Sequence[BlockHash]) -> int:
        """The number of leading blocks that are referenced: resident, and not idle."""
        names, stack = self._resident.names, self._stack
        low, step, end = -1, 1, len(path)
        # path[low] is referenced; so are all before it. Gallop, then bisect.
        while low + step < end and path[low + step] in names and path[low + step] not in stack:
            low, step = low + step, 2 * step
        high = min(low + step, end)
        while high - low > 1:
            middle = (low + high) // 2
            if path[middle] in names and path[middle] not in stack:
                low = middle
            else:
                high = middle
        return high

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
