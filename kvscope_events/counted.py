"""Events of a counted pool: its blocks, here called pages, have no numbers that may be read.

A page is free, private (of one sequence, not findable) or findable; findable pages are protected
while a sequence or another holder refers to them, and evictable otherwise. Private and protected
pages are active, evictable ones are cached. These events say of counts what those in `events.py`
say of block ids; a producer reports either set, and its `Hello` lists which. Content, where it is
reported, comes by name (`names.py`, tier `device`).

Declared separately; import them from `events.py` like the others.
"""

from kvscope_events.event import Event, Fact
from kvscope_events.limits import Blocks, Count, Finite, Positive
from kvscope_events.vocabulary import (
    AllocationCause,
    EvictionCause,
    PageReleaseCause,
    PageSharingCause,
    Tier,
)


class PagesAllocated(Event, frozen=True):
    """Free pages became private, with one reference each."""

    sequence: int | None  # None: of several sequences, a step's decodes
    pages: Blocks
    cause: AllocationCause


class PagesShared(Event, frozen=True):
    """Findable pages got one more reference each."""

    sequence: int | None  # None: not a sequence, as for a write to another tier
    pages: Blocks
    activated: Blocks  # of them, those that nothing referenced: cached until now
    cause: PageSharingCause


class PagesCached(Event, frozen=True):
    """Private pages became full and findable; their references stay."""

    sequence: int | None
    pages: Blocks


class PagesReleased(Event, frozen=True):
    """References were given back, split by the fate of the pages.

    With cause finished, aborted or preempted these are all references of the sequence.
    """

    sequence: int | None
    cached: Blocks  # findable, without a reference now
    free: Blocks  # private ones
    shared: Blocks  # still referenced by others
    cause: PageReleaseCause


class PagesEvicted(Event, frozen=True):
    """Cached pages lost their content and became free."""

    pages: Blocks
    cause: EvictionCause


class PagesLoaded(Event, frozen=True):
    """Free pages received content from a tier below the pool: they are cached now."""

    pages: Blocks
    tier: Tier


class PoolCounted(Fact, frozen=True):
    """The pool's whole state, for subscribers that lost batches; it replaces the state before."""

    num_blocks: Blocks
    block_size: Positive  # tokens of a page
    bytes_per_block: Count
    reserved: Blocks
    private: Blocks
    protected: Blocks
    cached: Blocks
    references: Count | None = None  # to private and protected pages; None: not known
    largest_step: Count | None = None  # tokens, of all steps of the session; None: not known
    size_tokens: Count | None = None  # capacity as the server itself reports it
    longest_sequences: Finite | None = None  # of max_model_len tokens, at once
