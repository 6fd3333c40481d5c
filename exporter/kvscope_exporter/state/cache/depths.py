"""Depths of the blocks that lookups ask for: the sizes of the smallest pools that would hold them.

The idle names are kept in the order of their release, evicted ones below those still resident, so
the depth of a looked-up block gives the smallest pool that would hold it (see `curve`). Exact for
engines that evict the oldest release first and release the tail of a sequence first, if neither
arrivals nor running times depend on the hits.

A name that a lookup takes out of the stack although the engine did not find it is computed again:
larger pools hold and reference it at once, the present one once it is cached. Until then further
lookups find it at the distance of the first. If its sequence ends before, the name is forgotten.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvscope_events.events import BlockHash, PoolCreated, PoolSnapshot, PrefixLookup
from kvscope_exporter.state.cache.blocks import Blocks, Doubles, ResidentNames
from kvscope_exporter.state.cache.curve import SCALES
from kvscope_exporter.state.cache.evicted import RecomputedNames
from kvscope_exporter.state.cache.run_stack import RunStack, Segment
from kvscope_exporter.state.capacity import is_plain

MOST_SCALE = int(SCALES[-1])
GHOST_NAMES = 1 << 19
"""Maximum number of names kept beyond those that the pool can hold: enough for four times the pool
if it has up to 174,762 blocks."""


class LookupDepths(NamedTuple):
    """Places of the blocks of a lookup."""

    held: int
    """Leading blocks that are hits in a pool of any size."""
    distances: list[Segment]
    """The smallest pool that holds the first of consecutive blocks, and their number: one block
    more for each of them."""
    found: int
    """Leading blocks that some size would have."""
    reach: int
    """Blocks that lay above all unknown names."""


class Depths:
    """Lost batches make everything unknown until a snapshot, which lists the resident names in
    order.

    Names evicted before a snapshot are not known, and not found.
    """

    def __init__(self, blocks: Blocks, resident: ResidentNames) -> None:
        self.known = False
        """Whether the state is known, and all blocks are of one kind that sees all tokens."""
        self.usable_blocks = 0
        self.horizon = 0
        """The largest pool whose content is known."""
        self._blocks = blocks
        self._resident = resident
        self._drops_last = False  # see PoolCreated.drops_last
        self._stack = RunStack()
        self._doubles = Doubles(resident)
        self._recomputed = RecomputedNames(0)
        self._found: tuple[int | None, int] = (None, 0)  # by the last lookup, of idle blocks

    def on_gap(self) -> None:
        self.known = False

    def begin(self, event: PoolCreated | PoolSnapshot) -> None:
        """A pool was created, empty, or a snapshot came with its content."""
        usable = event.num_blocks - event.reserved
        self._drops_last = event.drops_last
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

    def join(self, usable: int, idle: Iterable[BlockHash]) -> None:
        """Begin in the middle of a pool's life; idle: its names without a reference, the newest
        first."""
        self._start(usable)
        self._stack.fill(idle)

    def _start(self, usable: int) -> None:
        """With an empty stack, of which nothing is known."""
        self.known = True
        self.usable_blocks = usable
        self.horizon = min(MOST_SCALE * usable, usable + GHOST_NAMES)
        self._stack = RunStack(self.horizon)
        self._recomputed = RecomputedNames(self.horizon)

    def look_up(self, event: PrefixLookup, referenced: int) -> LookupDepths | None:
        """Called before the lookup changes anything; referenced: number of referenced blocks.

        If contradictory events reference more than the pool has, all of the pool counts. None: the
        state is not known.
        """
        if not self.known:
            return None
        path, stack = event.hashes, self._stack
        referenced = min(referenced, self.usable_blocks)
        reach = referenced + len(stack)
        distances: list[Segment] = []
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
        drops_last = self._drops_last
        if found > first:
            if drops_last and first == event.hit_blocks and path[first] in self._resident.names:
                stack.push(path[first : first + 1])  # it stays idle, though further down
            flat = [base + i for base, count in distances for i in range(count)]
            self._recomputed.begin(event.sequence, path[first:found], flat[first - held :])
        if drops_last:
            held = self._without_last(held, distances)
        return LookupDepths(held, distances, found, reach)

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
