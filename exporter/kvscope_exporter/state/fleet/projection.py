"""Projects an engine's stream for readers that follow a fleet; idle until one asks.

The last moments are kept in bounded memory. A reader that comes too late, or for the first time,
asks for all names instead, which the cache's fold knows.
"""

import secrets
from collections import deque
from collections.abc import Sequence
from itertools import islice

from kvscope_events.events import (
    Batch,
    BlocksCached,
    BlocksEvicted,
    ContentDropped,
    NamesCleared,
    NamesRemoved,
    NamesStored,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
)
from kvscope_events.names import group_of
from kvscope_exporter.state.cache.blocks import ResidentNames
from kvscope_exporter.state.fleet.projected import (
    NAME_BYTES,
    FirstLookup,
    Lost,
    PoolReset,
    RemovedNames,
    StepEvents,
    StoredNames,
)
from kvscope_exporter.state.fold import Fold

KEPT_BYTES = 8 << 20
"""Names of the moments that are kept: a million, those of some minutes."""
_MOMENT_BYTES = 200
"""A moment takes about that much besides its names."""


class Projection(Fold):
    """Moments since a reader asked, numbered from a number drawn at random.

    A reader outlives a sidecar: to the next one, its place in this stream must not be one in its.
    """

    name = "projection"

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._moments: deque[StepEvents] = deque()
        self._bytes = 0
        self._next_seq = secrets.randbelow(1 << 31)
        self._is_wanted = False
        self._unread = 0  # bytes since a reader last asked
        self._events: list[FirstLookup | StoredNames | RemovedNames | PoolReset | Lost] = []
        self._has_groups = False
        self._named: int | None = None  # blocks with a name; None: not known
        self._group: int | None = None  # in whose names lookups ask; None: the only one, or unknown
        super().__init__(
            {
                PoolSnapshot: self._synchronised,
                PoolCounted: self._synchronised,
                BlocksEvicted: self._lost,
                ContentDropped: self._lost,
            }
        )

    @property
    def next_seq(self) -> int:
        """Number of the moment that comes next."""
        return self._next_seq

    def on_batch(self, batch: Batch) -> None:
        super().on_batch(batch)
        if self._events:
            self._keep(StepEvents(self._next_seq, batch.wall_ns, self._events))
            self._events = []

    def on_gap(self) -> None:
        self._named = None
        if self._is_wanted:
            self._keep(StepEvents(self._next_seq, self.batch.wall_ns, [Lost()]))

    def since(self, seq: int | None) -> tuple[list[StepEvents], bool]:
        """The moments from `seq` on, and whether some of them are no longer here.

        From now on moments are kept. None: the reader has seen nothing.
        """
        self._is_wanted = True
        self._unread = 0
        first = self._next_seq - len(self._moments)
        if seq is None or not first <= seq <= self._next_seq:
            return [], seq is not None
        return list(islice(self._moments, seq - first, None)), False

    def held(self, resident: ResidentNames) -> bytes | None:
        """All names that the pool holds; None: not known, as the group of lookups is not yet."""
        if self._has_groups and self._group is None:
            return None
        names = [*resident.names]
        for name in resident.doubled:
            names += [name] * (resident.copies(name) - 1)
        return self._cut(names)

    def _keep(self, moment: StepEvents) -> None:
        self._next_seq += 1
        self._moments.append(moment)
        size = _size_of(moment)
        self._bytes += size
        self._unread += size
        if self._unread > 2 * self._kept_bytes:
            self._is_wanted = False
            self._moments.clear()
            self._bytes = 0
            self._next_seq += 1  # a reader that comes back sees a gap
        while self._bytes > self._kept_bytes:
            self._bytes -= _size_of(self._moments.popleft())

    def _cut(self, names: Sequence[bytes]) -> bytes:
        if self._has_groups:
            group = self._group
            names = [name for name in names if group_of(name) == group]
        return b"".join([name[:NAME_BYTES] for name in names])

    def on_pool_created(self, event: PoolCreated) -> None:
        self._has_groups = len(event.groups) > 1
        self._group = None
        self._named = 0
        if self._is_wanted:
            self._events.append(PoolReset())

    def _synchronised(self, event: PoolSnapshot | PoolCounted) -> None:
        named = 0
        if isinstance(event, PoolSnapshot):
            self._has_groups = len(event.groups) > 1
            named = sum(name is not None for name in event.hashes)
        if self._is_wanted and named != self._named:  # else another reader requested it
            self._events.append(Lost())
        self._named = named

    def on_prefix_lookup(self, event: PrefixLookup) -> None:
        if self._has_groups and self._group is None and event.hashes:
            self._group = group_of(event.hashes[0])
        if self._is_wanted and event.named and not event.resumed and event.hashes:
            names = b"".join([name[:NAME_BYTES] for name in event.hashes])
            self._events.append(FirstLookup(names, event.hit_blocks))

    def on_blocks_cached(self, event: BlocksCached) -> None:
        if self._named is not None:
            self._named += len(event.hashes)
        if self._is_wanted and (names := self._cut(event.hashes)):
            self._events.append(StoredNames(names, (event.parent or b"")[:NAME_BYTES]))

    def _lost(self, event: BlocksEvicted | ContentDropped) -> None:
        if self._named is not None:
            self._named -= len(event.hashes)
        if self._is_wanted and (names := self._cut(event.hashes)):
            self._events.append(RemovedNames(names))

    def on_names_stored(self, event: NamesStored) -> None:
        if self._is_wanted and event.tier == "device":
            parent = (event.parent or b"")[:NAME_BYTES]
            self._events.append(StoredNames(self._cut(event.names), parent))

    def on_names_removed(self, event: NamesRemoved) -> None:
        if self._is_wanted and event.tier == "device":
            self._events.append(RemovedNames(self._cut(event.names)))

    def on_names_cleared(self, event: NamesCleared) -> None:
        if self._is_wanted and event.tier == "device":
            self._events.append(PoolReset())


def _size_of(moment: StepEvents) -> int:
    names = sum(
        len(event.names)
        for event in moment.events
        if isinstance(event, FirstLookup | StoredNames | RemovedNames)
    )
    return _MOMENT_BYTES + names
