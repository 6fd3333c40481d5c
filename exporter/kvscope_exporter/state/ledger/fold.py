"""The ledger: the state of a pool's blocks, replayed from events.

Equal to the pool's own state after every batch, or `known` is False. An event that contradicts the
state is counted, and stays visible until the next snapshot.
"""

from kvscope_events.events import (
    BlocksSwapped,
    CacheGroup,
    Hello,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    StepCompleted,
)
from kvscope_exporter.state.fold import Fold
from kvscope_exporter.state.ledger.counted import CountedPages
from kvscope_exporter.state.ledger.holds import HoldReason
from kvscope_exporter.state.ledger.numbered import NumberedBlocks


class Ledger(Fold):
    """Reads are meaningful only while `known`."""

    name = "ledger"

    def __init__(self) -> None:
        self.blocks = NumberedBlocks(lambda: self.batch.arrived_ns)
        self.holds = self.blocks.holds
        self.pages = CountedPages()
        super().__init__(
            {
                **self.holds.handlers,
                **self.blocks.handlers,
                **self.pages.handlers,
            }
        )
        self._state: NumberedBlocks | CountedPages = self.blocks
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
        self.drops_last = False
        """See `PoolCreated.drops_last`."""
        self.swap_blocks = 0
        """Blocks of the host's swap pool; 0 without one."""
        self.swap_used = 0
        """Those of them that hold content of a swapped-out sequence."""
        self._difference = 0

    @property
    def known(self) -> bool:
        return self._state.known

    @property
    def is_counted(self) -> bool:
        """Whether its blocks are counted, not numbered: nothing is known of single ones."""
        return self._state is self.pages

    @property
    def num_active(self) -> int:
        return self._state.num_active

    @property
    def num_cached(self) -> int:
        return self._state.num_cached

    @property
    def num_free(self) -> int:
        return self.num_usable - self.num_active - self.num_cached

    @property
    def num_usable(self) -> int:
        """Blocks that can ever be handed out."""
        return self.num_blocks - self.reserved

    @property
    def num_shared(self) -> int | None:
        """Blocks with more than one reference; None: not known."""
        return None if self.is_counted else self.blocks.num_shared

    @property
    def num_deduplicated(self) -> int | None:
        """References beyond the first of each block; None: not known."""
        return self._state.num_deduplicated

    @property
    def held(self) -> dict[HoldReason, int] | None:
        """Blocks that only ended requests reference, by reason; None: not known, or never any."""
        return self.holds.count(self.blocks.ref_counts) if self.holds.known else None

    @property
    def active_ratio(self) -> float:
        return self.num_active / self.num_usable

    @property
    def resident_ratio(self) -> float:
        return (self.num_active + self.num_cached) / self.num_usable

    @property
    def violations(self) -> int:
        """Blocks of events that contradicted the state, since the last whole state."""
        return self._state.violations

    @property
    def imbalance(self) -> int:
        """Blocks that differed from the engine's count at the last step, and violations."""
        return self._difference + self.violations

    def state(self) -> PoolSnapshot:
        """A copy of the whole state, in the form of the pool's own snapshot; O(num_blocks).

        Raises ValueError for a counted pool, whose blocks have no state of their own.
        """
        if self.is_counted:
            raise ValueError("a counted pool has no blocks to list")
        return PoolSnapshot(
            self.num_blocks,
            self.block_size,
            self.bytes_per_block,
            self.reserved,
            self.blocks.ref_counts.copy(),
            self.blocks.hashes.copy(),
            self.blocks.lru(),
            self.memory_terms.copy(),
            self.groups.copy(),
            self.swap_blocks,
            self.swap_used,
            None,
            self.size_tokens,
            self.longest_sequences,
            self.alignment,
            self.retention,
            drops_last=self.drops_last,
        )

    def check(self) -> None:
        """Assert that the running counts are those of the blocks; O(num_blocks)."""
        self._state.check()

    def on_gap(self) -> None:
        self._state.lose()

    def on_hello(self, event: Hello) -> None:
        counted = "PoolCounted" in event.tells
        if counted != self.is_counted:
            self._state.lose()
            self._state = self.pages if counted else self.blocks
        self.holds.track(
            event.keeps_blocks is not False and not counted, self.blocks.num_references
        )

    def on_pool_created(self, event: PoolCreated) -> None:
        self._resize(event)
        self.memory_terms = _consistent(event.memory_terms)
        self.groups = event.groups
        self.alignment, self.retention = event.alignment, event.retention
        self.drops_last = event.drops_last
        self.swap_blocks, self.swap_used = event.swap_blocks, 0
        self._state.replace(event)

    def on_pool_snapshot(self, event: PoolSnapshot) -> None:
        self._resize(event)
        self.memory_terms = _consistent(event.memory_terms)
        self.groups = event.groups
        self.alignment, self.retention = event.alignment, event.retention
        self.drops_last = event.drops_last
        self.swap_blocks, self.swap_used = event.swap_blocks, event.swap_used
        self._state = self.blocks
        self.blocks.replace(event)

    def on_pool_counted(self, event: PoolCounted) -> None:
        self._resize(event)
        self._state = self.pages
        self.pages.replace(event)

    def _resize(self, event: PoolCreated | PoolSnapshot | PoolCounted) -> None:
        self.num_blocks = event.num_blocks
        self.block_size = event.block_size
        self.bytes_per_block = event.bytes_per_block
        self.reserved = event.reserved
        self.size_tokens = event.size_tokens
        self.longest_sequences = event.longest_sequences
        self._difference = 0

    def on_blocks_swapped(self, event: BlocksSwapped) -> None:
        self.swap_used = event.used

    def on_step_completed(self, event: StepCompleted) -> None:
        state = self._state
        if not state.known:
            return
        active = event.active_blocks
        if state is self.blocks:
            if self.holds.tracked:
                self.holds.step(state.num_references)
            if event.slots_filled is not None:  # more was written than the blocks hold
                state.violations += event.slots_filled > active * self.block_size
        own, cached = state.num_active, state.num_cached
        difference = (
            abs(active - own)
            + abs(event.cached_blocks - cached)
            + abs(event.free_blocks - (self.num_blocks - self.reserved - own - cached))
        )
        # A block in the wrong state is missing from one count and surplus in another.
        self._difference = (difference + 1) // 2


def _consistent(terms: dict[str, int]) -> dict[str, int]:
    """The terms of a pool's size; none where one below 0 contradicts the others, parts of a sum."""
    return terms if min(terms.values(), default=0) >= 0 else {}
