"""Counts of blocks evicted and copied, and of allocations that failed."""

from typing import get_args

from kvscope_events.events import AllocationFailed, BlockCopied, BlocksEvicted, PagesEvicted
from kvscope_events.vocabulary import EvictionCause
from kvscope_exporter.state.call_fold import CallFold


class Churn(CallFold):
    """Sums since the first event."""

    name = "churn"

    def __init__(self) -> None:
        super().__init__()
        self.evictions: dict[str, int] = dict.fromkeys(get_args(EvictionCause), 0)
        self.copies = 0
        self.allocation_failures = 0

    def on_blocks_evicted(self, event: BlocksEvicted) -> None:
        # A producer may know only names and no block ids, or, without a prefix cache, no names.
        self.evictions[event.cause] += max(len(event.blocks), len(event.hashes))

    def on_block_copied(self, event: BlockCopied) -> None:
        self.copies += 1

    def on_allocation_failed(self, event: AllocationFailed) -> None:
        self.allocation_failures += 1

    def on_pages_evicted(self, event: PagesEvicted) -> None:
        self.evictions[event.cause] += event.pages
