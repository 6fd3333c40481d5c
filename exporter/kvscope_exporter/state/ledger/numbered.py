"""State of a pool whose blocks have numbers: each one's references, content, and place in the LRU.

An event that contradicts the state is counted, and applied as far as it makes sense.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence

from kvscope_events.events import (
    BlockHash,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    PoolCreated,
    PoolSnapshot,
)
from kvscope_exporter.state.fold import handlers_of
from kvscope_exporter.state.ledger.holds import Holds


class NumberedBlocks:
    """Reads are meaningful only while `known`."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """now_ns: our monotonic clock when the batch being applied arrived."""
        self.holds = Holds(now_ns)
        self.handlers = handlers_of(self)
        self.known = False
        self.num_active = 0
        self.num_cached = 0
        self.num_shared = 0
        """Blocks with more than one reference."""
        self.num_references = 0
        self.violations = 0
        """Blocks of events that contradicted the state, since the last whole state."""
        self.ref_counts: list[int] = []
        self.hashes: list[BlockHash | None] = []
        self._reserved = 0
        self._num_blocks = 0
        # Position of a cached block in the LRU: greater than all earlier ones; 0: not cached. Takes
        # a tenth of the memory of an ordered dict, and is as fast.
        self._places = array("q")
        self._last_place = 0

    @property
    def num_deduplicated(self) -> int:
        """References beyond the first of each block."""
        return self.num_references - self.num_active

    @property
    def places(self) -> Sequence[int]:
        """By block: its position in the LRU, greater than all earlier ones; 0: not cached."""
        return self._places

    @property
    def last_place(self) -> int:
        """The position of the newest; only a new whole state begins again."""
        return self._last_place

    def replace(self, event: PoolCreated | PoolSnapshot) -> None:
        """Begin with the state of an empty pool, or of a snapshot."""
        count, lru = event.num_blocks, event.lru if isinstance(event, PoolSnapshot) else []
        if isinstance(event, PoolCreated):
            ref_counts: list[int] = [0] * count
            hashes: list[BlockHash | None] = [None] * count
            self.holds.begin(0)
        else:
            ref_counts, hashes = event.ref_counts.copy(), event.hashes.copy()
            if not (self.known and ref_counts == self.ref_counts):
                self.holds.begin(sum(ref_counts))
        self.ref_counts, self.hashes = ref_counts, hashes
        self._reserved, self._num_blocks = event.reserved, count
        self._places = array("q", bytes(8 * len(ref_counts)))
        self._last_place = self.num_cached = 0
        for block in lru:
            if block < len(ref_counts):
                self._append(block)
        self.num_active = sum(1 for references in ref_counts if references)
        self.num_shared = sum(1 for references in ref_counts if references > 1)
        self.num_references = sum(ref_counts)
        self.violations = 0
        self.known = True

    def lose(self) -> None:
        """Batches were lost: the state is unknown until the next whole one."""
        self.known = False
        self.holds.begin(0)

    def lru(self) -> list[int]:
        """Cached blocks, the oldest first."""
        places = self._places
        return sorted((b for b, place in enumerate(places) if place), key=places.__getitem__)

    def check(self) -> None:
        """Assert that the running counts are those of the blocks; O(num_blocks)."""
        counts = self.ref_counts
        assert len(counts) == len(self.hashes) == self._num_blocks
        assert self.num_active == sum(1 for count in counts if count)
        assert self.num_shared == sum(1 for count in counts if count > 1)
        assert self.num_references == sum(counts)
        self.holds.check(self.num_references)
        assert all(count >= 0 for count in counts)
        lru = self.lru()
        assert self.num_cached == len(lru)
        assert not any(counts[block] for block in lru), "a cached block is referenced"
        assert all(self.hashes[block] is not None for block in lru), "cached, no content"

    def on_blocks_allocated(self, event: BlocksAllocated) -> None:
        if not self.known:
            return
        ref_counts, hashes = self.ref_counts, self.hashes
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
        self.num_references += taken
        if self.holds.tracked:
            self.holds.take(event.sequence, blocks)

    def on_blocks_shared(self, event: BlocksShared) -> None:
        if not self.known:
            return
        ref_counts, places = self.ref_counts, self._places
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
            self.num_references += 1
        if self.holds.tracked:
            # The copy of a shared block keeps both until it is made, not the sequence.
            owner = None if event.cause == "cow" else event.sequence
            self.holds.take(owner, blocks, shared=True)

    def on_blocks_cached(self, event: BlocksCached) -> None:
        if not self.known:
            return
        ref_counts, hashes = self.ref_counts, self.hashes
        for block, block_hash in self._contents(event):
            if not ref_counts[block]:
                self.violations += 1  # a block without references is never written
                continue
            if hashes[block] is not None:
                self.violations += 1  # full once only
            hashes[block] = block_hash

    def on_blocks_evicted(self, event: BlocksEvicted) -> None:
        if not self.known:
            return
        hashes, places = self.hashes, self._places
        gone = 0
        for block, block_hash in self._contents(event):
            if not places[block]:
                self.violations += 1
                continue
            if hashes[block] != block_hash:
                self.violations += 1
            places[block] = 0
            gone += 1
            hashes[block] = None
        self.num_cached -= gone

    def on_content_dropped(self, event: ContentDropped) -> None:
        if not self.known:
            return
        hashes = self.hashes
        for block, block_hash in self._contents(event):
            if hashes[block] != block_hash:
                self.violations += 1
            hashes[block] = None
            self._remove(block)  # without references and content it is free

    def on_blocks_released(self, event: BlocksReleased) -> None:
        if not self.known:
            return
        ref_counts, hashes, places = self.ref_counts, self.hashes, self._places
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
        self.num_references -= ended
        for block in self._existing(event.shared):
            if ref_counts[block] > 2:  # several others use it, as nearly always
                ref_counts[block] -= 1
                self.num_references -= 1
            elif self._drop_reference(block) == 0:
                self.violations += 1  # that was the last reference
                if hashes[block] is not None:
                    self._append(block)
        if self.holds.tracked:
            self.holds.give_back(event, ref_counts)

    def _contents(
        self, event: BlocksCached | BlocksEvicted | ContentDropped
    ) -> Iterable[tuple[int, BlockHash]]:
        """Those of its blocks that exist in the pool, each with its name."""
        named = zip(event.blocks, event.hashes, strict=False)
        if self._existing(event.blocks) is event.blocks:
            return named
        return [pair for pair in named if self._reserved <= pair[0] < self._num_blocks]

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
        count = self.ref_counts[block]
        if not count:
            self.violations += 1  # a double free
            return -1
        self.ref_counts[block] = count - 1
        self.num_references -= 1
        if count == 1:
            self.num_active -= 1
        elif count == 2:
            self.num_shared -= 1
        return count - 1

    def _existing(self, blocks: list[int]) -> list[int]:
        """Those of the blocks that exist in the pool; any other counts as a contradiction."""
        if len(blocks) == 1 and self._reserved <= blocks[0] < self._num_blocks:  # as in decode
            return blocks
        if not blocks or (min(blocks) >= self._reserved and max(blocks) < self._num_blocks):
            return blocks
        existing = [block for block in blocks if self._reserved <= block < self._num_blocks]
        self.violations += len(blocks) - len(existing)
        return existing
