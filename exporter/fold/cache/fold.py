"""The fold of the prefix cache; it keeps the resident and the evicted names once for all questions.

A question is a component with its own state, called with the event and the names that it needs,
before or after they change; it keeps no names of its own.
"""

from exporter.fold.cache.blocks import NEVER, Blocks
from exporter.fold.cache.evicted import Evicted
from exporter.fold.cache.forgotten import Forgotten
from exporter.fold.cache.lookups import Lookups
from exporter.fold.cache.prefixes import COUNTERS, Prefixes
from exporter.fold.cache.regret import Regret
from exporter.fold.cache.residency import Residency
from exporter.fold.cache.resident import Resident
from exporter.fold.cache.whatif import WhatIf
from exporter.fold.fold import Fold
from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    PoolCreated,
    PoolSnapshot,
    PrefixCacheReset,
    PrefixLookup,
)

WINDOW_NAMES = 1 << 19
"""Number of evicted names kept exactly, with their times: 8.4 million tokens in blocks of 16, and
about as many names as a large pool has blocks. They take at most 100 MB."""
FORGOTTEN_NAMES = 1 << 22
"""Number of older names kept approximately, at least; at most twice as many. That is 67 million
tokens in blocks of 16. They take at most 16 MiB."""


class Cache(Fold):
    """Counts of lookups by phase, and of missed blocks by cause.

    A name counts as seen once a block with it has been cached: blocks that two sequences compute at
    the same time are cold for both. Names cached and evicted in lost batches were never seen.

    Names cached in blocks that the pool has not, or more names than it has blocks, contradict the
    events before: then the state is unknown, as after lost batches, until the next snapshot.
    """

    name = "cache"

    def __init__(
        self,
        window: int = WINDOW_NAMES,
        forgotten: int = FORGOTTEN_NAMES,
        counters: int = COUNTERS,
    ) -> None:
        super().__init__(
            {
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
        self.blocks = Blocks()
        self.resident = Resident()
        self.evicted = Evicted(window, Forgotten(forgotten))
        self.regret = Regret()
        self.residency = Residency(self.blocks)
        self.prefixes = Prefixes(counters)
        self.whatif = WhatIf(self.blocks, self.resident, self.evicted, lambda: self.batch.time_ns)
        self._lookups = Lookups()
        self.queried_tokens = self._lookups.queried_tokens
        self.hit_tokens = self._lookups.hit_tokens
        self.queried_blocks = self._lookups.queried_blocks
        self.hit_blocks = self._lookups.hit_blocks
        self.resets = 0
        self._known = False
        self._block_size = 0

    @property
    def known(self) -> bool:
        """Whether the names and the blocks' times are those of the pool."""
        return self._known

    @property
    def missed_blocks(self) -> dict[str, int]:
        """Missed blocks by cause; while the state is unknown, without those that need the names."""
        if self._known:
            return self._lookups.missed.copy()
        return {"partial": self._lookups.missed["partial"]}

    def now_ns(self, monotonic_ns: int) -> int:
        """A reading of our clock on the producer's: an idle producer is silent, and time passes."""
        return self.batch.time_ns + max(0, monotonic_ns - self.batch.arrived_ns)

    def on_gap(self) -> None:
        self._known = False
        self.whatif.on_gap()

    def _created(self, event: PoolCreated) -> None:
        self.blocks.replace(event)
        # Without a gap, what the former pool held went now.
        self._begin(event.block_size, [], self.batch.time_ns if self._known else NEVER)
        self.whatif.begin(event)

    def _synchronised(self, event: PoolSnapshot) -> None:
        if self._known and self.blocks.agrees(event):
            return  # another reader asked for it: it has nothing new, and no past
        self.blocks.replace(event)
        self._begin(
            event.block_size, [name for name in self.blocks.names if name is not None], NEVER
        )
        self.whatif.begin(event)

    def _begin(self, block_size: int, names: list[bytes], gone_ns: int) -> None:
        """gone_ns: when names went that are here no more; NEVER: somewhere in a gap."""
        self._block_size = block_size
        self.regret.begin()
        self.residency.begin()
        self.evicted.add(self.resident.replace(names), gone_ns)
        self.evicted.discard(names)
        self._known = True

    def _looked_up(self, event: PrefixLookup) -> None:
        if not self._block_size:  # joined late, and the snapshot has not come yet
            return
        self._lookups.ask(event, self._block_size)
        # A block goes when the pool is full, and vacant blocks are what is left of the last time.
        in_the_way = self.blocks.num_referenced + self.blocks.num_vacant
        loaded = -(-event.loaded_tokens // self._block_size)  # a part of a block is as good
        too_small = self.whatif.look_up(event, in_the_way, loaded)
        evicted_ns: list[int | None] = []
        if self._known:
            missed = event.hashes[event.hit_blocks :]
            if self._lookups.miss(missed, self.resident, self.evicted):
                evicted_ns = self.evicted.times_ns(missed)
                # What is loaded from elsewhere is not computed again.
                evicted_ns[:loaded] = [None] * min(loaded, len(evicted_ns))
        block_size, time_ns = self._block_size, self.batch.time_ns
        self.regret.look_up(
            evicted_ns, is_first=not event.resumed, block_size=block_size, time_ns=time_ns
        )
        for blocks_too_small, count in too_small:
            self.regret.too_far(blocks_too_small, count)
        if not event.resumed:
            self.prefixes.look_up(
                event.hashes,
                event.hit_blocks,
                evicted_ns,
                loaded_blocks=loaded,
                block_size=block_size,
                time_ns=time_ns,
            )

    def _allocated(self, event: BlocksAllocated) -> None:
        if self._known:
            self.blocks.allocate(event.blocks)

    def _shared(self, event: BlocksShared) -> None:
        if self._known:
            idle = self.blocks.idle_among(event.blocks)
            self.residency.share(idle, event.cause, self.batch.time_ns)
            self.blocks.share(idle)
            self.whatif.share(event.sequence, idle)

    def _released(self, event: BlocksReleased) -> None:
        if self._known:
            idle = self.blocks.release(event.cached, event.free, self.batch.time_ns)
            self.residency.release(idle, self.batch.time_ns)
            self.whatif.release(event)

    def _cached(self, event: BlocksCached) -> None:
        if not self._known:
            return
        if not self.blocks.can_hold(event.blocks, event.hashes):
            self.on_gap()
            return
        self.blocks.write(event.blocks, event.hashes, self.batch.time_ns)
        self.resident.add(event.hashes)
        self.evicted.discard(event.hashes)
        self.whatif.cache(event.hashes)
        if len(self.resident.names) > len(self.blocks.names):  # some must have gone untold
            self.on_gap()

    def _lost(self, event: BlocksEvicted | ContentDropped) -> None:
        if self._known:
            gone = self.resident.remove(event.hashes)
            self.evicted.add(gone, self.batch.time_ns)
            self.residency.lose(
                event.blocks, self.batch.time_ns, for_room=event.cause == "capacity"
            )
            self.whatif.lose(event, gone)
            self.blocks.lose(event.blocks)

    def _reset(self, event: PrefixCacheReset) -> None:
        self.resets += 1  # the names are gone with BlocksEvicted
        self.blocks.reset()
        self.whatif.reset()
