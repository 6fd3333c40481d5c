"""Counts of blocks handed out, given back, evicted and copied."""

from typing import get_args

from kvscope_events.events import (
    AllocationFailed,
    BlockCopied,
    BlocksAllocated,
    BlocksEvicted,
    BlocksReleased,
    BlocksSwapped,
    PagesAllocated,
    PagesEvicted,
    PagesReleased,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
)
from kvscope_events.vocabulary import (
    AllocationCause,
    EvictionCause,
    ReleaseCause,
    SwapDirection,
)
from kvscope_exporter.state.call_fold import CallFold


class Churn(CallFold):
    """Numbers of blocks by cause."""

    name = "churn"

    def __init__(self) -> None:
        super().__init__(
            {
                PoolCreated: self._begin,
                PoolSnapshot: self._begin,
            }
        )
        self.allocations: dict[str, int] = dict.fromkeys(get_args(AllocationCause), 0)
        self.releases: dict[str, int] = dict.fromkeys(get_args(ReleaseCause), 0)
        """References given back, whether or not they were the last. `superseded` are states that a
        newer one replaced: only where the pool has groups of states; `duplicate` are those of a
        counted pool for which a sequence uses equal ones of another."""
        self.evictions: dict[str, int] = dict.fromkeys(get_args(EvictionCause), 0)
        self.copies = 0
        self.swapped: dict[str, int] = dict.fromkeys(get_args(SwapDirection), 0)
        """Blocks copied, by direction."""
        self.allocation_failures = 0
        self._states: frozenset[int | None] = frozenset()  # groups of states, as events name them

    def _begin(self, event: PoolCreated | PoolSnapshot) -> None:
        states = {index for index, group in enumerate(event.groups) if group.kind == "state"}
        self._states = frozenset([None] if states and len(event.groups) == 1 else states)
        if states:
            self.releases.setdefault("superseded", 0)

    def on_blocks_allocated(self, event: BlocksAllocated) -> None:
        self.allocations[event.cause] += len(event.blocks)

    def on_blocks_released(self, event: BlocksReleased) -> None:
        is_state = event.cause == "out_of_window" and event.group in self._states
        cause = "superseded" if is_state else event.cause
        self.releases[cause] += len(event.cached) + len(event.free) + len(event.shared)

    def on_blocks_evicted(self, event: BlocksEvicted) -> None:
        # A producer may know only names and no block ids, or, without a prefix cache, no names.
        self.evictions[event.cause] += max(len(event.blocks), len(event.hashes))

    def on_block_copied(self, event: BlockCopied) -> None:
        self.copies += 1

    def on_blocks_swapped(self, event: BlocksSwapped) -> None:
        self.swapped[event.direction] += event.blocks

    def on_allocation_failed(self, event: AllocationFailed) -> None:
        self.allocation_failures += 1

    def on_pool_counted(self, event: PoolCounted) -> None:
        self.releases.setdefault("duplicate", 0)

    def on_pages_allocated(self, event: PagesAllocated) -> None:
        self.allocations[event.cause] += event.pages

    def on_pages_released(self, event: PagesReleased) -> None:
        pages = event.cached + event.free + event.shared
        self.releases[event.cause] = self.releases.get(event.cause, 0) + pages

    def on_pages_evicted(self, event: PagesEvicted) -> None:
        self.evictions[event.cause] += event.pages
