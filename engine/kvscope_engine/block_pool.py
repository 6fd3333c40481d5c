"""Fixed pool of KV blocks: reference counts, content index, LRU eviction; O(1) for every block.

A block is in exactly one state: active (referenced), cached (unreferenced, findable by its hash, in
the evictor), free, or reserved (never handed out). Every call that changes something emits one
event, so that replaying the events gives this state.
"""

from collections.abc import Iterable, Sequence

from kvscope_engine.evictor import LruEvictor
from kvscope_events.bus import Bus
from kvscope_events.events import (
    BlockHash,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    PoolCreated,
    PoolSnapshot,
    PrefixCacheReset,
)
from kvscope_events.vocabulary import AllocationCause, EvictionCause, ReleaseCause, SharingCause


class OutOfBlocksError(Exception):
    """More blocks were requested than are free or evictable; the pool is unchanged."""

    def __init__(self, wanted: int, available: int) -> None:
        super().__init__(f"{wanted} blocks wanted, {available} free or evictable")
        self.wanted = wanted
        self.available = available


class BlockPool:
    """Blocks 0..num_blocks-1, the first `reserved` of them never handed out.

    Lists given to the pool become part of an event: the caller must not change them afterwards.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        bus: Bus,
        *,
        bytes_per_block: int = 0,
        reserved: int = 0,
        memory_terms: dict[str, int] | None = None,
        swap_blocks: int = 0,
    ) -> None:
        """swap_blocks: size of the swap pool, which is announced with the pool."""
        if not 0 <= reserved < num_blocks:
            raise ValueError(f"reserved must be in [0, {num_blocks}), got {reserved}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.bytes_per_block = bytes_per_block
        self.reserved = reserved
        self._memory_terms = memory_terms or {}
        self._emit = bus.emit
        self._ref_counts = [0] * num_blocks
        self._hash_of: list[BlockHash | None] = [None] * num_blocks
        self._block_of: dict[BlockHash, int] = {}  # the copy that a lookup finds
        self._copies: dict[BlockHash, list[int]] = {}  # additional blocks with the same content
        self._free = list(range(num_blocks - 1, reserved - 1, -1))  # a stack, low ids on top
        self._evictor = LruEvictor(num_blocks)
        self._emit(
            PoolCreated(
                num_blocks,
                block_size,
                bytes_per_block,
                reserved,
                self._memory_terms,
                swap_blocks=swap_blocks,
            )
        )

    @property
    def num_usable(self) -> int:
        """Blocks that can ever be handed out: all except the reserved ones."""
        return self.num_blocks - self.reserved

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._evictor)

    @property
    def num_active(self) -> int:
        return self.num_usable - len(self._free) - len(self._evictor)

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` could hand out now."""
        return len(self._free) + len(self._evictor)

    def find(self, hashes: Iterable[BlockHash]) -> list[int]:
        """The blocks of the leading resident run; changes nothing."""
        get = self._block_of.get
        blocks = []
        for block_hash in hashes:
            block = get(block_hash)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def num_cached_among(self, blocks: Iterable[int]) -> int:
        """Number of the findable `blocks` that are unreferenced, and so in the evictor."""
        ref_counts = self._ref_counts
        return sum(1 for block in blocks if not ref_counts[block])

    def is_shared(self, block: int) -> bool:
        """Whether the block has more than one reference."""
        return self._ref_counts[block] > 1

    def num_shared_among(self, blocks: Iterable[int]) -> int:
        """Number of the `blocks` that have more than one reference."""
        ref_counts = self._ref_counts
        return sum(1 for block in blocks if ref_counts[block] > 1)

    def allocate(self, sequence: int, count: int, cause: AllocationCause) -> list[int]:
        """Hand out `count` blocks with one reference each: free ones first, then the oldest cached.

        Raises OutOfBlocksError. The list belongs to the event: copy from it.
        """
        free = self._free
        shortage = count - len(free)
        if shortage <= 0:
            blocks = free[-shortage:]  # the end of the stack, from len(free) - count on
            del free[-shortage:]
        elif shortage > len(self._evictor):
            raise OutOfBlocksError(count, self.num_available)
        else:
            blocks = free + self._evict(shortage, "capacity")
            free.clear()
        ref_counts = self._ref_counts
        for block in blocks:
            ref_counts[block] = 1
        self._emit(BlocksAllocated(sequence, blocks, cause))
        return blocks

    def share(self, sequence: int, blocks: list[int], cause: SharingCause = "prefix_hit") -> None:
        """Take a reference on each of the `blocks`, which are findable or referenced."""
        ref_counts = self._ref_counts
        for block in blocks:
            count = ref_counts[block]
            if not count:
                self._evictor.remove(block)
            ref_counts[block] = count + 1
        self._emit(BlocksShared(sequence, blocks, cause))

    def cache(
        self, sequence: int, blocks: list[int], hashes: list[BlockHash], parent: BlockHash | None
    ) -> None:
        """Make full active blocks findable; equal content in another block stays beside it."""
        hash_of, index = self._hash_of, self._block_of.setdefault
        assert len(blocks) == len(hashes), f"{len(blocks)} blocks, {len(hashes)} hashes"
        for i, block in enumerate(blocks):  # zip(strict=...) costs 130 ns a call
            block_hash = hashes[i]
            hash_of[block] = block_hash
            if index(block_hash, block) != block:
                self._copies.setdefault(block_hash, []).append(block)
        self._emit(BlocksCached(sequence, blocks, hashes, parent))

    def release(self, sequence: int, block_table: Sequence[int], cause: ReleaseCause) -> None:
        """Drop one reference on each block of a table, tail first: a prefix outlives its suffix."""
        ref_counts, hash_of = self._ref_counts, self._hash_of
        cached: list[int] = []
        free: list[int] = []
        shared: list[int] = []
        for block in reversed(block_table):
            count = ref_counts[block] - 1
            assert count >= 0, f"double free: block {block} has no reference"
            ref_counts[block] = count
            if count:
                shared.append(block)
            elif hash_of[block] is None:
                free.append(block)
            else:
                cached.append(block)
        self._evictor.extend(cached)
        self._free += free
        self._emit(BlocksReleased(sequence, cached, free, shared, cause))

    def reset(self) -> int:
        """Forget the content of all cached blocks; returns how many there were."""
        blocks = self._evict(len(self._evictor), "reset")
        self._free += blocks
        self._emit(PrefixCacheReset(len(blocks)))
        return len(blocks)

    def snapshot(self, largest_step: int | None = None) -> PoolSnapshot:
        """The whole state, copied; O(num_blocks). largest_step: in tokens, which no pool knows."""
        return PoolSnapshot(
            self.num_blocks,
            self.block_size,
            self.bytes_per_block,
            self.reserved,
            self._ref_counts.copy(),
            self._hash_of.copy(),
            list(self._evictor),
            self._memory_terms,
            largest_step=largest_step,
        )

    def check(self) -> None:
        """Assert every invariant; O(num_blocks). For tests and idle moments, never in a step."""
        free, cached = self._free, list(self._evictor)
        assert len(cached) == len(self._evictor), "evictor: length and links disagree"
        assert len({*free, *cached}) == len(free) + len(cached), "a block is listed twice"
        assert all(self._hash_of[b] is not None for b in cached), "cached without content"
        assert all(self._hash_of[b] is None for b in free), "free with content"
        unreferenced = {b for b in range(self.reserved, self.num_blocks) if not self._ref_counts[b]}
        assert unreferenced == {*free, *cached}, (
            "unreferenced blocks neither free nor cached: a leak"
        )
        findable = [*self._block_of.values(), *(b for c in self._copies.values() for b in c)]
        named = {b for b, block_hash in enumerate(self._hash_of) if block_hash is not None}
        assert sorted(findable) == sorted(named), "content index and blocks disagree"
        assert all(self._hash_of[b] == h for h, b in self._block_of.items()), "wrong content index"

    def _evict(self, count: int, cause: EvictionCause) -> list[int]:
        if not count:
            return []
        blocks = self._evictor.pop(count)
        hash_of, block_of, copies = self._hash_of, self._block_of, self._copies
        hashes: list[BlockHash] = []
        for block in blocks:
            block_hash = hash_of[block]
            assert block_hash is not None, f"cached block {block} has no content"
            hash_of[block] = None
            hashes.append(block_hash)
            if copies and block_hash in copies:
                self._drop_copy(block, block_hash)
            else:
                del block_of[block_hash]
        self._emit(BlocksEvicted(blocks, hashes, cause))
        return blocks

    def _drop_copy(self, block: int, block_hash: BlockHash) -> None:
        """Drop one of several blocks with this content; a remaining one is, or becomes,
        findable."""
        copies = self._copies[block_hash]
        if self._block_of[block_hash] == block:
            self._block_of[block_hash] = copies.pop(0)
        else:
            copies.remove(block)
        if not copies:
            del self._copies[block_hash]
