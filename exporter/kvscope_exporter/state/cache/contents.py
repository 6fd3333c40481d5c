"""Present and past content of a pool: its blocks, resident and evicted names, their depths.

Names cached in blocks that the pool does not have, or more names than it has blocks, contradict the
earlier events: the state is then unknown until the next snapshot, as after lost batches.
"""

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    Hello,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    PrefixCacheReset,
    PrefixLookup,
)
from kvscope_exporter.state.cache.blocks import NEVER, Blocks, ResidentNames
from kvscope_exporter.state.cache.counted import CountedContents
from kvscope_exporter.state.cache.depths import Depths, LookupDepths
from kvscope_exporter.state.cache.evicted import EvictedNames, ForgottenNames
from kvscope_exporter.state.fold import Fold

WINDOW_NAMES = 1 << 19
"""Number of evicted names kept exactly, with their times: 8.4 million tokens in blocks of 16, and
about as many names as a large pool has blocks. They take at most 100 MB."""
FORGOTTEN_NAMES = 1 << 22
"""Number of older names kept approximately, at least; at most twice as many. That is 67 million
tokens in blocks of 16. They take at most 16 MiB."""
ENDS = frozenset({"finished", "aborted", "preempted", "swapped_out"})
"""Causes of a release of everything that a sequence holds."""


class Contents(Fold):
    """The common part of `Cache` and the command `whatif`; each adds its own questions."""

    def __init__(self, window: int = WINDOW_NAMES, forgotten: int = FORGOTTEN_NAMES) -> None:
        self.blocks = Blocks()
        self.resident = ResidentNames()
        self.evicted = EvictedNames(window, ForgottenNames(forgotten))
        self.depths = self._make_depths()
        self.counted = CountedContents(
            self.resident, self.evicted, self.depths, lambda: self.batch.time_ns
        )
        super().__init__(
            {
                Hello: self._introduced,
                PoolCounted: self._counted,
                PoolCreated: self._created,
                PoolSnapshot: self._synchronised,
                PrefixLookup: self._looked_up,
                BlocksAllocated: self._allocated,
                BlocksShared: self._shared,
                BlocksReleased: self._released,
                BlocksCached: self._cached,
                BlocksEvicted: self._lost,
                ContentDropped: self._lost,
                PrefixCacheReset: self._reset,
            }
        )
        self.block_size = 0
        """Tokens; 0 before the first pool."""
        self._is_counted = False
        self._known = False

    def _make_depths(self) -> Depths:
        return Depths(self.blocks, self.resident)

    @property
    def known(self) -> bool:
        """Whether the names and the blocks' times are those of the pool."""
        return self.counted.known if self._is_counted else self._known

    def on_gap(self) -> None:
        self._known = False
        if self._is_counted:
            self.counted.on_gap()
        self.depths.on_gap()

    def _introduced(self, event: Hello) -> None:
        self._is_counted = "PoolCounted" in event.tells
        if self._is_counted:  # other engines do not pay for them at each step
            self.handlers.update(self.counted.handlers)
        self.counted.is_followed = self._is_counted and "NamesStored" in event.tells

    def _counted(self, event: PoolCounted) -> None:
        self.block_size = event.block_size
        self.counted.begin(event)

    def _created(self, event: PoolCreated) -> None:
        # Without a gap, the former pool's content goes now.
        self._begin(event, self.batch.time_ns if self._known else NEVER)

    def _synchronised(self, event: PoolSnapshot) -> None:
        if self._known and self.blocks.agrees(event):
            return  # another reader requested it: it has nothing new, and no past
        self._begin(event, NEVER)

    def _begin(self, event: PoolCreated | PoolSnapshot, gone_ns: int) -> None:
        """gone_ns: when the names that are gone left; NEVER: somewhere in a gap."""
        if self._is_counted and isinstance(event, PoolCreated):
            self.block_size = event.block_size
            self.counted.begin(event)
            return
        self.blocks.replace(event)
        names = [name for name in self.blocks.names if name is not None]
        self.block_size = event.block_size
        self.evicted.add(self.resident.replace(names), gone_ns)
        self.evicted.discard(names)
        self._known = True
        self.depths.begin(event)

    def _looked_up(self, event: PrefixLookup) -> None:
        if self.block_size:  # otherwise we joined late, and the snapshot is still to come
            self._look_up(event)

    def _look_up(self, event: PrefixLookup) -> LookupDepths | None:
        """See `Depths.look_up`."""
        # A block goes when the pool is full, and vacant blocks are what is left of the last time.
        in_the_way = (
            self.counted.in_the_way
            if self._is_counted
            else self.blocks.num_referenced + self.blocks.num_vacant
        )
        looked = self.depths.look_up(event, in_the_way)
        self.counted.look_up(event)
        return looked

    def _allocated(self, event: BlocksAllocated) -> None:
        if self._known:
            self.blocks.allocate(event.blocks)

    def _shared(self, event: BlocksShared) -> None:
        if self._known:
            idle = self.blocks.idle_among(event.blocks)
            self._share(event, idle)

    def _share(self, event: BlocksShared, idle: list[int]) -> None:
        """idle: those of its blocks without a reference."""
        self.blocks.share(idle)
        self.depths.share(event.sequence, idle)

    def _released(self, event: BlocksReleased) -> None:
        if self._known:
            self._release(event)

    def _release(self, event: BlocksReleased) -> int:
        """Returns how many of its blocks become idle."""
        idle = self.blocks.release(event.cached, event.free, self.batch.time_ns)
        names = self.blocks.names_of(event.cached[::-1])
        self.depths.release(event.sequence, names, ends=event.cause in ENDS)
        return idle

    def _cached(self, event: BlocksCached) -> None:
        if not self._known:
            return
        names, time_ns = event.hashes, self.batch.time_ns
        if not self.blocks.write(event.blocks, names, time_ns):
            self.on_gap()
            return
        self.resident.add(names)
        self.evicted.discard(names)
        self.depths.cache(names, time_ns)
        if len(self.resident.names) > len(self.blocks.names):  # some must have gone unreported
            self.on_gap()

    def _lost(self, event: BlocksEvicted | ContentDropped) -> None:
        if self._known:
            gone = self.resident.remove(event.hashes)
            self.evicted.add(gone, self.batch.time_ns)
            self.depths.lose(
                event.hashes,
                gone,
                for_room=event.cause == "capacity",
                were_referenced=isinstance(event, ContentDropped),
            )
            self.blocks.lose(event.blocks)

    def _reset(self, event: PrefixCacheReset) -> None:
        self.blocks.reset()  # the names are gone with BlocksEvicted
        self.depths.reset()
