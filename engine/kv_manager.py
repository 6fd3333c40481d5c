"""Block tables over the pool: prefix lookup, admission, growth, naming of full blocks, release.

Only blocks whose KV has been computed are ever findable: `commit` runs after the step, so a step
that fails leaves no block behind that promises content it does not have.
"""

from engine.block_pool import BlockPool
from engine.content_listener import tell_stored
from engine.sequence import Sequence
from kvscope_events.bus import Bus
from kvscope_events.events import PrefixLookup
from kvscope_events.vocabulary import ReleaseCause


class KVManager:
    """The one place that changes a sequence's block table."""

    def __init__(self, pool: BlockPool, bus: Bus, *, enable_prefix_caching: bool = True) -> None:
        self._pool = pool
        self.block_size = pool.block_size
        self._emit = bus.emit
        self._enable_prefix_caching = enable_prefix_caching
        self.num_unfilled_slots = 0
        """Token slots of active blocks that hold nothing yet, each block once.

        Kept up at every change. A shared block is full, so it counts for none of its owners.
        """

    @property
    def num_available_blocks(self) -> int:
        """Blocks that the pool could hand out now."""
        return self._pool.num_available

    def find_prefix(self, sequence: Sequence) -> list[int]:
        """Resident blocks that begin with the sequence's tokens; changes no block.

        At most (tokens - 1) // block_size of them: one token must be computed to get logits. Names
        are computed as far as they are asked for, and kept in the sequence's hasher.
        """
        if not self._enable_prefix_caching:
            return []
        findable = (len(sequence.tokens) - 1) // self.block_size
        names = sequence.hasher.extend(sequence.tokens, findable)
        return self._pool.find(names if len(names) == findable else names[:findable])

    def can_admit(self, sequence: Sequence, prefix: list[int]) -> bool:
        """Whether all present tokens of a waiting sequence fit, given its resident prefix."""
        wanted = self._blocks_for(len(sequence.tokens)) - len(prefix)
        return wanted <= self._pool.num_available - self._pool.num_cached_among(prefix)

    def admit(self, sequence: Sequence, prefix: list[int]) -> None:
        """Give a waiting sequence blocks for all its present tokens, the resident prefix shared.

        All at once, although chunks are computed step by step: once admitted, a prefill never stops
        for want of blocks. Raises OutOfBlocksError unless `can_admit` said yes.
        """
        if self._enable_prefix_caching:
            findable = (len(sequence.tokens) - 1) // self.block_size
            names = sequence.hasher.names[:findable]
            self._emit(
                PrefixLookup(
                    sequence.sequence_id,
                    len(sequence.tokens),
                    names,
                    len(prefix),
                    sequence.num_preemptions > 0,
                )
            )
        table = sequence.block_table
        if prefix:
            self._pool.share(sequence.sequence_id, prefix, "prefix_hit")
            table += prefix
        fresh = self._pool.allocate(
            sequence.sequence_id, self._blocks_for(len(sequence.tokens)) - len(prefix), "prefill"
        )
        table += fresh
        self.num_unfilled_slots += len(fresh) * self.block_size
        sequence.num_cached_blocks = len(prefix)
        sequence.num_computed_tokens = len(prefix) * self.block_size

    def missing_blocks(self, sequence: Sequence) -> int:
        """Blocks that a running sequence lacks for its newest token; 0 or less: it has a slot."""
        return -(-len(sequence.tokens) // self.block_size) - len(sequence.block_table)

    def can_grow(self, sequence: Sequence) -> bool:
        """Whether the pool has the blocks that a running sequence lacks."""
        return self.missing_blocks(sequence) <= self._pool.num_available

    def grow(self, sequence: Sequence) -> None:
        """Give a running sequence the blocks that it lacks.

        Raises OutOfBlocksError unless `can_grow` said yes.
        """
        missing = self.missing_blocks(sequence)
        assert missing > 0, "it has a slot"
        sequence.block_table += self._pool.allocate(sequence.sequence_id, missing, "decode")
        self.num_unfilled_slots += missing * self.block_size

    def commit(self, sequence: Sequence, num_computed_tokens: int) -> None:
        """The KV of that many leading tokens is there: the blocks they fill become findable."""
        self.num_unfilled_slots -= num_computed_tokens - sequence.num_computed_tokens
        sequence.num_computed_tokens = num_computed_tokens
        first, last = sequence.num_cached_blocks, num_computed_tokens // self.block_size
        if first >= last or not self._enable_prefix_caching:
            return
        names = sequence.hasher.extend(sequence.tokens, last)
        if self._pool.listener is not None:
            tell_stored(self._pool, sequence, names, range(first, last))
        self._pool.cache(
            sequence.sequence_id,
            sequence.block_table[first:last],
            names[first:last],
            names[first - 1] if first else None,
        )
        sequence.num_cached_blocks = last

    def release(self, sequence: Sequence, cause: ReleaseCause) -> None:
        """Take all blocks back; the full ones stay findable until they are evicted."""
        table = sequence.block_table
        if table:
            self._pool.release(sequence.sequence_id, table, cause)
        self.num_unfilled_slots -= len(table) * self.block_size - sequence.num_computed_tokens
        sequence.block_table = []
        sequence.num_cached_blocks = 0
        sequence.num_computed_tokens = 0

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
