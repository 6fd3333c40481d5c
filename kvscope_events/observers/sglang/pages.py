"""Counts what SGLang's calls do to the pages of its pool, from lengths alone.

A page is free, private (one request's, not in the tree), or in the tree, where it is protected
(locked) or evictable. What a lock changes is read from SGLang's own counter of evictable tokens,
before and after it: locks of one admission come and go several times, and only their sum by node
counts.
"""

from __future__ import annotations

from typing import Any

from kvscope_events.events import (
    EngineEvent,
    PagesAllocated,
    PagesCached,
    PagesEvicted,
    PagesLoaded,
    PagesReleased,
    PagesShared,
    PrefixCacheReset,
)
from kvscope_events.observers.sglang.patching import Arguments, Keywords
from kvscope_events.vocabulary import PageReleaseCause


class Pages:
    """The counts, and the hooks of tree and allocator that change them."""

    def __init__(self, scheduler: Any, number_of: Any, events: list[EngineEvent]) -> None:
        """number_of: gives a request's number; events: where they go."""
        self.tree = scheduler.tree_cache
        self.pool = scheduler.token_to_kv_pool_allocator
        self.events = events
        self.page = int(self.pool.page_size)
        self.num_pages = int(self.pool.size) // self.page
        self.private = self.in_tree = self.protected = self.references = 0
        self.knows_references = True
        """Whether `references` is exact: it is not after a difference from SGLang's counts."""
        self.by_node: dict[int, int] = {}
        """Evictable tokens that locks outside of releases gained or took, by node."""
        self.has_host_tier = getattr(self.tree, "cache_controller", None) is not None
        self.content_changed = True
        """Whether the tree may have stored or removed names since this was last cleared."""
        self._number_of = number_of
        self._releasing: Any = None
        self._protected_before = 0
        self._publishing = 0
        self._evicting = 0
        self._new = 0  # pages that the inserts in progress put into the tree
        self._lock_delta = 0  # evictable tokens gained by the locks in progress

    @property
    def free(self) -> int:
        return self.num_pages - self.private - self.in_tree

    @property
    def evictable(self) -> int:
        return self.in_tree - self.protected

    def of_sglang(self) -> tuple[int, int, int]:
        """Free, evictable and protected pages by SGLang's own counts; O(1), no tensor is read."""
        page, tree = self.page, self.tree
        return (
            int(self.pool.available_size()) // page,
            int(tree.evictable_size()) // page,
            int(tree.protected_size()) // page,
        )

    def recount(self, references: int | None = None) -> None:
        """Continue from SGLang's own counts; references: None if they are not known."""
        free, evictable, self.protected = self.of_sglang()
        self.in_tree = evictable + self.protected
        self.private = self.num_pages - free - self.in_tree
        self.references, self.knows_references = references or 0, references is not None
        self.by_node.clear()

    # Memory of batches.

    def allocate(self, sequence: int | None, pages: int, cause: Any) -> None:
        if pages:
            self.private += pages
            self.references += pages
            self.events.append(PagesAllocated(sequence, pages, cause))

    def tell_unlocked(self) -> None:
        """Report pages that other holders have unlocked: they may be locked again or evicted."""
        gained = {node: tokens for node, tokens in self.by_node.items() if tokens > 0}
        for node in gained:
            del self.by_node[node]
        self._pin(-sum(gained.values()) // self.page)

    def admit(self, sequence: int, prefix: int, node: Any) -> PagesShared | None:
        """A request got the pages of its prefix; returns the event."""
        activated = -self.by_node.pop(id_of(node), 0) // self.page
        pages = prefix // self.page
        self.references += pages
        return PagesShared(sequence, pages, activated, "prefix_hit") if pages else None

    # The end of a request.

    def release_begins(self, args: Arguments, kwargs: Keywords) -> None:
        request = args[0] if args else kwargs["req"]
        self._new = self._lock_delta = 0
        self._releasing, self._protected_before = request, protected_of(request)

    def release(self, request: Any, cause: PageReleaseCause) -> int | None:
        """Its row is about to be freed, all lengths are still there; returns its pages, or None if
        no release of it has begun."""
        if self._releasing is not request:
            return None
        self._releasing, page = None, self.page
        before = self._protected_before // page
        held = -(-int(request.kv.kv_allocated_len) // page) - before
        new, self._new = self._new, 0
        activated = self._lock_delta // page
        cached, shared = new + activated, before - activated
        self.private -= held
        self.references -= held + before
        sequence = self._number_of(request)
        if new:
            self.events.append(PagesCached(sequence, new))
        self.events.append(PagesReleased(sequence, cached, held - new, shared, cause))
        return held

    # The tree.

    def publish_begins(self, args: Arguments, kwargs: Keywords) -> int | None:
        """Full pages of a running request go into the tree."""
        if self._releasing is not None:
            return None
        self._publishing += 1
        self._new = self._lock_delta = 0
        return protected_of(args[0] if args else kwargs["req"])

    def published(self, before: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        if before is None:
            return
        self._publishing -= 1
        request = args[0] if args else kwargs["req"]
        moved = (protected_of(request) - before) // self.page
        new, self._new = self._new, 0
        if moved <= 0 and not new:
            return
        self.private -= moved  # into the tree, or freed as duplicates of what it has
        sequence, twice = self._number_of(request), moved - new
        locked = -self._lock_delta // self.page - new  # beside those that are new
        if new:
            self.events.append(PagesCached(sequence, new))
        if twice > 0:
            activated = max(0, locked)
            locked -= activated
            self.events.append(PagesShared(sequence, twice, activated, "duplicate"))
            self.events.append(PagesReleased(sequence, 0, twice, 0, "duplicate"))
        self._pin(locked)

    def insert_begins(self, args: Arguments, kwargs: Keywords) -> int:
        # A node that only the host holds gets pages again inside an insert, which its result does
        # not count as new.
        return int(self.tree.evictable_size() + self.tree.protected_size())

    def inserted(self, before: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        self.content_changed = True
        if self.has_host_tier:
            size = int(self.tree.evictable_size() + self.tree.protected_size())
            new = (size - before) // self.page
        else:
            params = args[0] if args else kwargs["params"]
            new = len(params.key) // self.page - int(result.prefix_len) // self.page
        if new > 0:
            self._new += new
            self.in_tree += new

    def evict_begins(self, args: Arguments, kwargs: Keywords) -> None:
        self._evicting += 1

    def evicted(self, note: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        self._evicting -= 1
        self.content_changed = True
        if self._evicting:  # evict_for_alloc calls evict in one of the trees
            return
        pages = int(result.num_tokens_evicted) // self.page
        if pages:
            self.tell_unlocked()
            self.in_tree -= pages
            self.events.append(PagesEvicted(pages, "capacity"))

    def lock_begins(self, args: Arguments, kwargs: Keywords) -> int:
        return int(self.tree.evictable_size())

    def locked(self, before: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        delta = int(self.tree.evictable_size()) - before
        if not delta:
            return
        self.protected -= delta // self.page
        if self._releasing is not None or self._publishing:
            self._lock_delta += delta
        else:
            node = id_of(args[0] if args else next(iter(kwargs.values())))
            self.by_node[node] = self.by_node.get(node, 0) + delta

    def settle_locks(self) -> None:
        """Locks that no admission claimed belong to other holders, as HiCache's writes."""
        self._pin(-sum(self.by_node.values()) // self.page)
        self.by_node.clear()

    def _pin(self, pages: int) -> None:
        """Another holder than a request locked this many pages; below 0: unlocked them."""
        self.references += pages
        if pages > 0:
            self.events.append(PagesShared(None, pages, pages, "pin"))
        elif pages:
            self.events.append(PagesReleased(None, -pages, 0, 0, "unpinned"))

    # A tier on the host.

    def loaded(self, note: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        """Pages of the tree come back from the host."""
        if result is not None:
            pages = len(result) // self.page
            self.in_tree += pages
            self.events.append(PagesLoaded(pages, "host"))

    def commit_begins(self, args: Arguments, kwargs: Keywords) -> int:
        return int(self.tree.protected_size())

    def committed(self, before: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        pages = (int(self.tree.protected_size()) - before) // self.page
        if pages > 0:
            self.protected += pages
            self.references += pages
            self.events.append(PagesShared(None, pages, pages, "pin"))

    # A flush.

    def tree_reset(self, note: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        self.content_changed = True
        if self.in_tree:
            self.events.append(PagesEvicted(self.in_tree, "reset"))
        self.events.append(PrefixCacheReset(self.in_tree))
        self.in_tree = self.protected = 0

    def pool_cleared(self, note: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        if self.private:
            self.events.append(PagesReleased(None, 0, self.private, 0, "aborted"))
        self.private = self.references = 0


def protected_of(request: Any) -> int:
    """Tokens of a request that are in the tree, and locked by it."""
    kv = getattr(request, "kv", None)  # None in some releases until it has pages
    length = getattr(kv, "cache_protected_len", None)
    return int(request.cache_protected_len if length is None else length)


def id_of(node: Any) -> int:
    """Nodes of the Rust tree are numbers, those of Python's are objects."""
    return node if isinstance(node, int) else id(node)
