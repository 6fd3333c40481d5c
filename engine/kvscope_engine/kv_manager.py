"""Block tables over the pool: prefix lookup, admission, growth, forks, naming, release.

Only blocks whose KV has been computed are ever findable: `commit` runs after the step, so a failed
step leaves no block behind whose name promises content it does not have.
"""

from kvscope_engine.block_mover import BlockCopier
from kvscope_engine.block_pool import BlockPool
from kvscope_engine.copy_on_write import SharedTails
from kvscope_engine.request import Sequence
from kvscope_events.bus import Bus
from kvscope_events.events import PrefixLookup
from kvscope_events.vocabulary import ReleaseCause


class KVManager:
    """The one place that changes a sequence's block table."""

    def __init__(
        self,
        pool: BlockPool,
        bus: Bus,
        *,
        enable_prefix_caching: bool = True,
        copier: BlockCopier | None = None,
    ) -> None:
        """copier: None if nothing can copy blocks; then no sequence is forked."""
        self._pool = pool
        self.block_size = pool.block_size
        self._emit = bus.emit
        self._enable_prefix_caching = enable_prefix_caching
        self.num_unfilled_slots = 0
        """Token slots of active blocks that hold nothing yet, each block once.

        Updated at every change. A shared block is full, except for a last block after a fork.
        """
        self._tails = None if copier is None else SharedTails(pool, bus, copier)
        self._shared_tails: set[int] = set() if self._tails is None else self._tails.blocks

    @property
    def can_fork(self) -> bool:
        """Whether `fork` may be called."""
        return self._tails is not None

    @property
    def num_available_blocks(self) -> int:
        """Blocks that the pool could hand out now."""
        return self._pool.num_available

    def find_prefix(self, sequence: Sequence) -> list[int]:
        """Resident blocks that begin with the sequence's tokens; changes no block.

        At most (tokens - 1) // block_size of them: one token must be computed to get logits. Names
        are computed as far as needed, and kept in the sequence's hasher.
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
        for lack of blocks. Blocks for what a swapped-out sequence has on the host follow those of
        its prefix; they are yet to be filled. Raises OutOfBlocksError unless `can_admit` returned
        True.
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
        on_host = len(sequence.host_blocks) - len(prefix)
        if on_host > 0:
            table += self._pool.allocate(sequence.sequence_id, on_host, "swap_in")
        missing = self._blocks_for(len(sequence.tokens)) - len(table)
        if missing:
            table += self._pool.allocate(sequence.sequence_id, missing, "prefill")
        self.num_unfilled_slots += (len(table) - len(prefix)) * self.block_size
        sequence.num_cached_blocks = len(prefix)
        sequence.num_computed_tokens = len(prefix) * self.block_size

    def missing_blocks(self, sequence: Sequence) -> int:
        """Blocks that a running sequence lacks to write its newest token; 0 or less: it lacks none.

        A shared last block does not count: it will be copied.
        """
        if self._shared_tails and sequence.block_table[-1] in self._shared_tails:
            return 1
        return -(-len(sequence.tokens) // self.block_size) - len(sequence.block_table)

    def can_grow(self, sequence: Sequence) -> bool:
        """Whether the pool has the blocks that a running sequence lacks."""
        return self.missing_blocks(sequence) <= self._pool.num_available

    def grow(self, sequence: Sequence) -> None:
        """Give a running sequence the blocks that it lacks, if any.

        Raises OutOfBlocksError unless `can_grow` returned True.
        """
        if self._tails and sequence.block_table[-1] in self._shared_tails:
            self._tails.copy(sequence)
            self.num_unfilled_slots += self._unfilled_slots(sequence)
            return
        missing = self.missing_blocks(sequence)
        if missing <= 0:
            return  # after a preemption it is the block's only owner
        sequence.block_table += self._pool.allocate(sequence.sequence_id, missing, "decode")
        self.num_unfilled_slots += missing * self.block_size

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let a sample of the same prompt share all blocks of one that has computed exactly that
        prompt.

        The last block too if it is partially filled: the first one to write to it will get a copy.
        """
        assert self._tails is not None, "nothing can copy blocks"
        assert parent.num_computed_tokens == child.prompt_length == len(child.tokens)
        self._pool.share(child.sequence_id, parent.block_table.copy(), "fork")
        child.block_table = parent.block_table.copy()
        child.num_computed_tokens = parent.num_computed_tokens
        child.num_cached_blocks = parent.num_cached_blocks
        child.hasher = parent.hasher.copy()
        if self._unfilled_slots(child):
            self._shared_tails.add(child.block_table[-1])

    def commit(self, sequence: Sequence, num_computed_tokens: int) -> None:
        """The KV of that many leading tokens exists: the blocks they fill become findable."""
        self.num_unfilled_slots -= num_computed_tokens - sequence.num_computed_tokens
        sequence.num_computed_tokens = num_computed_tokens
        first, last = sequence.num_cached_blocks, num_computed_tokens // self.block_size
        if first >= last or not self._enable_prefix_caching:
            return
        names = sequence.hasher.extend(sequence.tokens, last)
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
        if self._tails and table and table[-1] in self._shared_tails:
            self._tails.lost_owner(table[-1])  # its slots still belong to the others
        else:
            self.num_unfilled_slots -= self._unfilled_slots(sequence)
        sequence.block_table = []
        sequence.num_cached_blocks = 0
        sequence.num_computed_tokens = 0

    def _unfilled_slots(self, sequence: Sequence) -> int:
        return len(sequence.block_table) * self.block_size - sequence.num_computed_tokens

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
