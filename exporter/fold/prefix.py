"""The prefix cache's books: queried, hit, and missed by cause, in tokens and blocks.

Holds the names that are resident now, and a bounded memory of the names that ever were.
"""

from collections import Counter

from kvscope_events.events import (
    AllocationFailed,
    BlockHash,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    DeviceMemorySampled,
    DeviceOutOfMemory,
    FirstToken,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    StepCompleted,
)
from exporter.fold.fold import Fold

MAX_SEEN_NAMES = 1 << 20
"""Names remembered, as 64-bit hashes of about 70 bytes; any two collide with chance 3 in 10^8."""


class Prefix(Fold):
    """Counts of lookups by phase, and of missed blocks by cause.

    A name was seen once its block had been cached: blocks that two requests compute at the same
    time are cold for both.
    """

    name = "prefix"
    ignored = frozenset(
        {
            AllocationFailed,
            BlocksAllocated,
            BlocksReleased,
            BlocksShared,
            DeviceMemorySampled,
            DeviceOutOfMemory,
            FirstToken,
            RequestArrived,
            RequestFinished,
            RequestPreempted,
            RequestRejected,
            RequestResumed,
            RequestScheduled,
            StepCompleted,
        }
    )

    def __init__(self, max_seen_names: int = MAX_SEEN_NAMES) -> None:
        super().__init__(
            {
                PoolCreated: self._created,
                PoolSnapshot: self._synchronised,
                PrefixLookup: self._looked_up,
                BlocksCached: self._cached,
                BlocksEvicted: self._evicted,
            }
        )
        self.queried_tokens = {"first": 0, "resumed": 0}
        self.hit_tokens = {"first": 0, "resumed": 0}
        self.queried_blocks = {"first": 0, "resumed": 0}
        self.hit_blocks = {"first": 0, "resumed": 0}
        self._missed = {"cold": 0, "evicted": 0, "unreachable": 0, "partial": 0}
        self._known = False
        self._block_size = 0
        self._copies: dict[BlockHash, int] = {}  # resident blocks by name
        self._max_seen_names = max_seen_names
        self._seen: set[int] = set()
        self._remembers_all = True

    @property
    def missed_blocks(self) -> dict[str, int]:
        """By cause; without the causes that can no longer, or not now, be told apart."""
        missed = self._missed.copy()
        if not self._known:
            del missed["unreachable"]
        if not (self._known and self._remembers_all):
            del missed["cold"], missed["evicted"]
        return missed

    def on_gap(self) -> None:
        self._known = False

    def _created(self, event: PoolCreated) -> None:
        self._block_size = event.block_size
        self._copies = {}
        self._known = True

    def _synchronised(self, event: PoolSnapshot) -> None:
        self._block_size = event.block_size
        names = [name for name in event.hashes if name is not None]
        self._copies = dict(Counter(names))
        self._remember(names)
        self._known = True

    def _looked_up(self, event: PrefixLookup) -> None:
        block_size = self._block_size
        if not block_size:  # joined late, and the snapshot has not come yet
            return
        phase = "resumed" if event.resumed else "first"
        full, hits = len(event.hashes), event.hit_blocks
        partial = event.queried_tokens > full * block_size
        self.queried_tokens[phase] += event.queried_tokens
        self.hit_tokens[phase] += hits * block_size
        self.queried_blocks[phase] += full + partial
        self.hit_blocks[phase] += hits
        missed = self._missed
        missed["partial"] += partial
        if not self._known:
            return
        copies, seen = self._copies, self._seen
        for name in event.hashes[hits:]:
            if name in copies:
                missed["unreachable"] += 1
            elif hash(name) in seen:
                missed["evicted"] += 1
            else:
                missed["cold"] += 1

    def _cached(self, event: BlocksCached) -> None:
        if not self._known:
            return
        copies = self._copies
        for name in event.hashes:
            copies[name] = copies.get(name, 0) + 1
        self._remember(event.hashes)

    def _evicted(self, event: BlocksEvicted) -> None:
        if not self._known:
            return
        copies = self._copies
        for name in event.hashes:
            left = copies.get(name, 0) - 1
            if left > 0:
                copies[name] = left
            else:
                copies.pop(name, None)

    def _remember(self, names: list[BlockHash]) -> None:
        if not self._remembers_all:
            return
        self._seen.update(map(hash, names))
        if len(self._seen) > self._max_seen_names:
            self._remembers_all = False
            self._seen = set()
