"""Block tables over the pool: prefix lookup, admission, growth, naming of full blocks, release.

Only blocks whose KV has been computed are ever findable: `commit` runs after the step, so a step
that fails leaves no block behind that promises content it does not have.
"""

from engine.block_pool import BlockPool
from engine.request import Request
from kvscope_events.bus import Bus
from kvscope_events.events import AllocationFailed, PrefixLookup, ReleaseCause


class KVManager:
    """The one place that changes a request's block table."""

    def __init__(self, pool: BlockPool, bus: Bus, *, enable_prefix_caching: bool = True) -> None:
        self._pool = pool
        self.block_size = pool.block_size
        self._emit = bus.emit
        self._enable_prefix_caching = enable_prefix_caching

    def find_prefix(self, request: Request) -> list[int]:
        """Resident blocks that begin with the request's tokens; changes nothing.

        At most (tokens - 1) // block_size of them: one token must be computed to get logits.
        """
        if not self._enable_prefix_caching:
            return []
        findable = (len(request.tokens) - 1) // self.block_size
        names = request.hasher.extend(request.tokens, findable)
        return self._pool.find(names if len(names) == findable else names[:findable])

    def can_admit(self, request: Request, prefix: list[int]) -> bool:
        """Whether all present tokens of a waiting request fit, given its resident prefix."""
        wanted = self._blocks_for(len(request.tokens)) - len(prefix)
        return wanted <= self._pool.num_available - self._pool.num_cached_among(prefix)

    def admit(self, request: Request, prefix: list[int]) -> None:
        """Give a waiting request blocks for all its present tokens, the resident prefix shared.

        All at once, although chunks are computed step by step: once admitted, a prefill never stops
        for want of blocks. Raises OutOfBlocksError unless `can_admit` said yes.
        """
        if self._enable_prefix_caching:
            findable = (len(request.tokens) - 1) // self.block_size
            names = request.hasher.names[:findable]
            self._emit(
                PrefixLookup(
                    request.request_id,
                    len(request.tokens),
                    names,
                    len(prefix),
                    request.num_preemptions > 0,
                )
            )
        table = request.block_table
        if prefix:
            self._pool.share(request.request_id, prefix)
            table += prefix
        table += self._pool.allocate(
            request.request_id, self._blocks_for(len(request.tokens)) - len(prefix), "prefill"
        )
        request.num_cached_blocks = len(prefix)
        request.num_computed_tokens = len(prefix) * self.block_size

    def grow(self, request: Request) -> bool:
        """Give a running request a slot for its newest token; False, and an event, if not."""
        missing = self._blocks_for(len(request.tokens)) - len(request.block_table)
        if missing <= 0:
            return True
        if missing > self._pool.num_available:
            available = self._pool.num_available
            self._emit(AllocationFailed(request.request_id, missing, available))
            return False
        request.block_table += self._pool.allocate(request.request_id, missing, "decode")
        return True

    def commit(self, request: Request) -> None:
        """Make the blocks findable that the last step filled."""
        first, last = request.num_cached_blocks, request.num_computed_tokens // self.block_size
        if first >= last or not self._enable_prefix_caching:
            return
        names = request.hasher.extend(request.tokens, last)
        self._pool.cache(
            request.request_id,
            request.block_table[first:last],
            names[first:last],
            names[first - 1] if first else None,
        )
        request.num_cached_blocks = last

    def release(self, request: Request, cause: ReleaseCause) -> None:
        """Take all blocks back; the full ones stay findable until they are evicted."""
        if request.block_table:
            self._pool.release(request.request_id, request.block_table, cause)
        request.block_table = []
        request.num_cached_blocks = 0
        request.num_computed_tokens = 0

    def unfilled_slots(self, request: Request) -> int:
        """Slots of the request's blocks without a token; shared blocks have none."""
        return len(request.block_table) * self.block_size - request.num_computed_tokens

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
