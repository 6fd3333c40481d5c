"""State of a counted pool: how many pages are private, protected and cached, and nothing of each.

An event that takes more pages than there are is counted as a contradiction, page by page, and
applied as far as the pages go.
"""

from kvscope_events.events import (
    PagesAllocated,
    PagesCached,
    PagesEvicted,
    PagesLoaded,
    PagesReleased,
    PagesShared,
    PoolCounted,
    PoolCreated,
)
from kvscope_exporter.state.fold import handlers_of


class CountedPages:
    """Reads are meaningful only while `known`."""

    def __init__(self) -> None:
        self.handlers = handlers_of(self)
        self.known = False
        self.num_private = 0
        """Active pages that cannot be found."""
        self.num_protected = 0
        """Active pages that can be found."""
        self.num_cached = 0
        self.violations = 0
        """Pages of events that contradicted the state, since the last whole state."""
        self._num_references: int | None = 0
        self._usable = 0

    @property
    def num_active(self) -> int:
        return self.num_private + self.num_protected

    @property
    def num_deduplicated(self) -> int | None:
        """References beyond the first of each page; None: the snapshot did not say."""
        references = self._num_references
        return None if references is None else max(0, references - self.num_active)

    def replace(self, event: PoolCreated | PoolCounted) -> None:
        """Begin with the state of an empty pool, or of a snapshot."""
        self._usable = event.num_blocks - event.reserved
        if isinstance(event, PoolCounted):
            self.num_private, self.num_protected = event.private, event.protected
            self.num_cached, self._num_references = event.cached, event.references
        else:
            self.num_private = self.num_protected = self.num_cached = self._num_references = 0
        self.violations = 0
        self.known = True

    def lose(self) -> None:
        """Batches were lost: the state is unknown until the next whole one."""
        self.known = False

    def check(self) -> None:
        """Assert that the counts are possible."""
        parts = (self.num_private, self.num_protected, self.num_cached)
        assert min(parts) >= 0
        assert sum(parts) <= self._usable

    def on_pages_allocated(self, event: PagesAllocated) -> None:
        if self.known:
            free = self._usable - self.num_active - self.num_cached
            self.num_private += self._of(event.pages, free)
            self._refer(event.pages)

    def on_pages_shared(self, event: PagesShared) -> None:
        if self.known:
            activated = self._of(event.activated, self.num_cached)
            self.num_cached -= activated
            self.num_protected += activated
            self._refer(event.pages)

    def on_pages_cached(self, event: PagesCached) -> None:
        if self.known:
            pages = self._of(event.pages, self.num_private)
            self.num_private -= pages
            self.num_protected += pages

    def on_pages_released(self, event: PagesReleased) -> None:
        if self.known:
            cached = self._of(event.cached, self.num_protected)
            self.num_protected -= cached
            self.num_cached += cached
            self.num_private -= self._of(event.free, self.num_private)
            self._refer(-event.cached - event.free - event.shared)

    def on_pages_evicted(self, event: PagesEvicted) -> None:
        if self.known:
            self.num_cached -= self._of(event.pages, self.num_cached)

    def on_pages_loaded(self, event: PagesLoaded) -> None:
        if self.known:
            free = self._usable - self.num_active - self.num_cached
            self.num_cached += self._of(event.pages, free)

    def _of(self, pages: int, available: int) -> int:
        """As many of these pages as there can be; the others contradict the state."""
        if pages <= available:
            return pages
        self.violations += pages - available
        return available

    def _refer(self, references: int) -> None:
        if self._num_references is not None:
            self._num_references += references
