"""The block ledger: every block's references, content and place in the LRU, replayed from events.

Equal to the pool's own state after every batch, or `known` is False. An event that contradicts the
state is counted, applied as far as it makes sense, and stays visible until the next snapshot.
"""

from array import array

from exporter.fold.fold import Fold
from exporter.fold.holds import HoldReason, Holds
from kvscope_events.events import (
    BlockHash,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    BlocksSwapped,
    CacheGroup,
    ContentDropped,
    Hello,
    PoolCreated,
    PoolSnapshot,
    StepCompleted,
)


class Ledger(Fold):
    """Reads are meaningful only while `known`."""

    name = "ledger"

    def __init__(self) -> None:
        self.holds = Holds(lambda: self.batch.arrived_ns)
        super().__init__(
            {
                **self.holds.handlers,
                Hello: self._introduced,
                PoolCreated: self._created,
                PoolSnapshot: self._synchronised,
                BlocksAllocated: self._allocated,
                BlocksShared: self._shared,
                BlocksCached: self._cached,
                BlocksEvicted: self._evicted,
                ContentDropped: self._dropped,
                BlocksReleased: self._released,
                BlocksSwapped: self._swapped,
                StepCompleted: self._compared,
            }
        )
        self.known = False
        self.num_blocks = 0
        self.block_size = 0
        self.bytes_per_block = 0
        self.reserved = 0
        self.memory_terms: dict[str, int] = {}
        """Bytes by term of the pool's sizing; empty where the size was configured."""
        self.groups: list[CacheGroup] = []
        self.size_tokens: int | None = None
        """Capacity as the server reports it, reserved blocks included; None: not reported."""
        self.longest_sequences: float | None = None
        self.alignment: int | None = None
        """Tokens of which a hit is a multiple; None: not known."""
        self.retention: int | None = None
        """See `PoolCreated.retention`."""
        self.swap_blocks = 0
        """Blocks of the host's swap pool; 0 without one."""
        self.swap_used = 0
        """Those of them that hold content of a swapped-out sequence."""
        self.num_active = 0
        self.num_shared = 0
        """Blocks with more than one reference."""
        self.violations = 0
        """Blocks of events that contradicted the state, since the last whole state."""
        self._unfilled_slots: int | None = None  # at the last step
        self._references = 0
        self._difference = 0
        self._ref_counts: list[int] = []
        self._hashes: list[BlockHash | None] = []
        # Position of a cached block in the LRU: greater than all earlier ones; 0: not cached. Takes
        # a tenth of the memory of an ordered dict, and is as fast.
        self._places = array("q")
        self._last_place = 0
        self.num_cached = 0

    @property
    def num_free(self) -> int:
        return self.num_usable - self.num_active - self.num_cached

    @property
    def num_usable(self) -> int:
        """Blocks that can ever be handed out."""
        return self.num_blocks - self.reserved

    @property
    def num_deduplicated(self) -> int:
        """References beyond the first."""
        return self._references - self.num_active

    @property
    def unfilled_slots(self) -> int | None:
        """Slots of active blocks not written at the last step; None: no step has counted them."""
        unknown = self._unfilled_slots is None and len(self.groups) > 1
        return self._unfilled_slots if self.num_active or unknown else 0

    @property
    def held(self) -> dict[HoldReason, int] | None:
        """Blocks that only ended requests reference, by reason; None: not known, or never any."""
        return self.holds.count(self._ref_counts) if self.holds.known else None

    @property
    def active_ratio(self) -> float:
        return self.num_active / self.num_usable

    @property
    def resident_ratio(self) -> float:
        return (self.num_active + self.num_cached) / self.num_usable

    @property
    def imbalance(self) -> int:
        """Blocks that differed from the engine's count at the last step, and violations."""
        return self._difference + self.violations

    def state(self) -> PoolSnapshot:
        """A copy of the whole state, in the form of the pool's own snapshot; O(num_blocks)."""
        return PoolSnapshot(
            self.num_blocks,
            self.block_size,
            self.bytes_per_block,
            self.reserved,
            self._ref_counts.copy(),
            self._hashes.copy(),
            self._lru(),
            self.memory_terms.copy(),
            self.groups.copy(),
            self.swap_blocks,
            self.swap_used,
            None,
            self.size_tokens,
            self.longest_sequences,
            self.alignment,
            self.retention,
        )

    def check(self) -> None:
        """Assert that the running counts are those of the blocks; O(num_blocks)."""
        counts = self._ref_counts
        assert len(counts) == len(self._hashes) == self.num_blocks
        assert self.num_active == sum(1 for count in counts if count)
        assert self.num_shared == sum(1 for count in counts if count > 1)
        assert self._references == sum(counts)
        self.holds.check(self._references)
        assert all(count >= 0 for count in counts)
        lru = self._lru()
        assert self.num_cached == len(lru)
        assert not any(counts[block] for block in lru), "a cached block is referenced"
        assert all(self._hashes[block] is not None for block in lru), "cached, no content"

    def on_gap(self) -> None:
        self.known = False
        self.holds.begin(0)

    def _introduced(self, event: Hello) -> None:
        self.holds.track(event.keeps_blocks is not False, self._references)

    def _created(self, event: PoolCreated) -> None:
        self._unfilled_slots, number = None, event.num_blocks
        self._replace(event, ref_counts=[0] * number, hashes=[None] * number, lru=[])
        self.holds.begin(0)

    def _synchronised(self, event: PoolSnapshot) -> None:
        was_known = self.known
        if not (was_known and event.ref_counts == self._ref_counts):
            self.holds.begin(sum(event.ref_counts))
        ref_counts, hashes = event.ref_counts.copy(), event.hashes.copy()
        self._replace(event, ref_counts=ref_counts, hashes=hashes, lru=event.lru)
        if not was_known:
            self._unfilled_slots = None

    def _replace(
        self,
        event: PoolCreated | PoolSnapshot,
        *,
        ref_counts: list[int],
        hashes: list[BlockHash | None],
        lru: list[int],
    ) -> None:
        self.num_blocks = event.num_blocks
        self.block_size = event.block_size
        self.bytes_per_block = event.bytes_per_block
        self.reserved = event.reserved
        # A term below 0 contradicts the others, which are parts of one total.
        terms = event.memory_terms
        self.memory_terms = terms if min(terms.values(), default=0) >= 0 else {}
        self.groups = event.groups
        self.size_tokens = event.size_tokens
        self.longest_sequences = event.longest_sequences
        self.alignment = event.alignment
        self.retention = event.retention
        self.swap_blocks = event.swap_blocks
        self.swap_used = event.swap_used if isinstance(event, PoolSnapshot) else 0
        self._ref_counts = ref_counts
        self._hashes = hashes
        self._places = array("q", bytes(8 * len(ref_counts)))
        self._last_place = self.num_cached = 0
        for block in lru:
            if block < len(ref_counts):
                self._append(block)
        self.num_active = sum(1 for count in ref_counts if count)
        self.num_shared = sum(1 for count in ref_counts if count > 1)
        self._references = sum(ref_counts)
        self.violations = 0
        self._difference = 0
        self.known = True

    def _allocated(self, event: BlocksAllocated) -> None:
        if not self.known:
            return
        ref_counts, hashes = self._ref_counts, self._hashes
        taken = 0
        blocks = self._existing(event.blocks)
        for block in blocks:
            if ref_counts[block]:
                self.violations += 1  # handed out twice
                continue
            if hashes[block] is not None:
                self.violations += 1  # cached, and never evicted
                hashes[block] = None
                self._remove(block)
            ref_counts[block] = 1
            taken += 1
        self.num_active += taken
        self._references += taken
        if self.holds.tracked:
            self.holds.take(event.sequence, blocks)

    def _shared(self, event: BlocksShared) -> None:
        if not self.known:
            return
        ref_counts, places = self._ref_counts, self._places
        blocks = self._existing(event.blocks)
        for block in blocks:
            count = ref_counts[block]
            if not count:
                if places[block]:
                    places[block] = 0
                    self.num_cached -= 1
                else:
                    self.violations += 1  # a free block holds nothing to share
                self.num_active += 1
            elif count == 1:
                self.num_shared += 1
            ref_counts[block] = count + 1
            self._references += 1
        if self.holds.tracked:
            # The copy of a shared block keeps both until it is made, not the sequence.
            owner = None if event.cause == "cow" else event.sequence
            self.holds.take(owner, blocks, shared=True)

    def _cached(self, event: BlocksCached) -> None:
        if not self.known:
            return
        ref_counts, hashes = self._ref_counts, self._hashes
        self._existing(event.blocks)
        for block, block_hash in zip(event.blocks, event.hashes, strict=False):
            if not self.reserved <= block < self.num_blocks:
                continue
            if not ref_counts[block]:
                self.violations += 1  # a block without references is never written
                continue
            if hashes[block] is not None:
                self.violations += 1  # full once only
            hashes[block] = block_hash

    def _evicted(self, event: BlocksEvicted) -> None:
        if not self.known:
            return
        hashes, places = self._hashes, self._places
        self._existing(event.blocks)
        gone = 0
        for block, block_hash in zip(event.blocks, event.hashes, strict=False):
            if not self.reserved <= block < self.num_blocks:
                continue
            if not places[block]:
                self.violations += 1
                continue
            if hashes[block] != block_hash:
                self.violations += 1
            places[block] = 0
            gone += 1
            hashes[block] = None
        self.num_cached -= gone

    def _dropped(self, event: ContentDropped) -> None:
        if not self.known:
            return
        hashes = self._hashes
        self._existing(event.blocks)
        for block, block_hash in zip(event.blocks, event.hashes, strict=False):
            if not self.reserved <= block < self.num_blocks:
                continue
            if hashes[block] != block_hash:
                self.violations += 1
            hashes[block] = None
            self._remove(block)  # without references and content it is free

    def _released(self, event: BlocksReleased) -> None:
        if not self.known:
            return
        ref_counts, hashes, places = self._ref_counts, self._hashes, self._places
        ended = 0
        for block in self._existing(event.cached):
            if ref_counts[block] == 1 and hashes[block] is not None:  # as it should be
                ref_counts[block] = 0
                self._last_place = places[block] = self._last_place + 1
                self.num_cached += 1
                ended += 1
                continue
            left = self._drop_reference(block)
            if left == 0 and hashes[block] is not None:
                self._append(block)
            elif left >= 0:
                self.violations += 1  # still referenced, or nothing in it to find
        for block in self._existing(event.free):
            if ref_counts[block] == 1 and hashes[block] is None:  # as it should be
                ref_counts[block] = 0
                ended += 1
                continue
            left = self._drop_reference(block)
            if left > 0 or (left == 0 and hashes[block] is not None):
                self.violations += 1  # still referenced, or its content got lost
            if left == 0:
                hashes[block] = None
        self.num_active -= ended
        self._references -= ended
        for block in self._existing(event.shared):
            if self._drop_reference(block) == 0:
                self.violations += 1  # that was the last reference
                if hashes[block] is not None:
                    self._append(block)
        if self.holds.tracked:
            self.holds.give_back(event, ref_counts)

    def _swapped(self, event: BlocksSwapped) -> None:
        self.swap_used = event.used

    def _lru(self) -> list[int]:
        """Cached blocks, the oldest first."""
        places = self._places
        return sorted((b for b, place in enumerate(places) if place), key=places.__getitem__)

    def _append(self, block: int) -> None:
        """Make it the newest of the cached blocks."""
        self.num_cached += not self._places[block]
        self._last_place = self._places[block] = self._last_place + 1

    def _remove(self, block: int) -> None:
        """Remove it from the cached blocks, if it was one."""
        self.num_cached -= self._places[block] != 0
        self._places[block] = 0

    def _drop_reference(self, block: int) -> int:
        """Drop one; returns the references left, or -1 for a contradiction: it had no reference."""
        count = self._ref_counts[block]
        if not count:
            self.violations += 1  # a double free
            return -1
        self._ref_counts[block] = count - 1
        self._references -= 1
        if count == 1:
            self.num_active -= 1
        elif count == 2:
            self.num_shared -= 1
        return count - 1

    def _compared(self, event: StepCompleted) -> None:
        if not self.known:
            return
        if self.holds.tracked:
            self.holds.step(self._references)
        active = event.active_blocks
        if event.slots_filled is not None:
            unfilled = active * self.block_size - event.slots_filled
            self._unfilled_slots = unfilled if unfilled >= 0 else None
            self.violations += unfilled < 0  # more was written than the blocks hold
        difference = (
            abs(active - self.num_active)
            + abs(event.cached_blocks - self.num_cached)
            + abs(event.free_blocks - self.num_free)
        )
        # A block in the wrong state is missing from one count and surplus in another.
        self._difference = (difference + 1) // 2

    def _existing(self, blocks: list[int]) -> list[int]:
        """Those of the blocks that exist in the pool; any other counts as a contradiction."""
        if not blocks or (min(blocks) >= self.reserved and max(blocks) < self.num_blocks):
            return blocks
        existing = [block for block in blocks if self.reserved <= block < self.num_blocks]
        self.violations += len(blocks) - len(existing)
        return existing
