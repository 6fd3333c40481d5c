"""Content of a counted pool: its pages by number, its names as they are stored and removed.

After lost batches the names are unknown, and become known one by one: when they are stored or
found. The names are known again once there are as many as findable pages.
"""

from collections.abc import Callable

from kvscope_events.events import (
    BlockHash,
    NamesCleared,
    NamesRemoved,
    NamesStored,
    PagesAllocated,
    PagesReleased,
    PagesShared,
    PoolCounted,
    PoolCreated,
    PrefixLookup,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state.cache.blocks import ResidentNames
from kvscope_exporter.state.cache.depths import Depths
from kvscope_exporter.state.cache.evicted import EvictedNames
from kvscope_exporter.state.cache.paths import Paths
from kvscope_exporter.state.fold import Handlers
from kvscope_exporter.state.ledger.counted import CountedPages

_ENDS = frozenset({"finished", "aborted", "preempted"})


class CountedContents:
    """Changes the names that it is given: resident, evicted, and those of the curve."""

    def __init__(
        self,
        resident: ResidentNames,
        evicted: EvictedNames,
        depths: Depths,
        now_ns: Callable[[], int],
    ) -> None:
        """now_ns: the producer's clock."""
        self.pages = CountedPages()
        self.handlers: Handlers = {
            **self.pages.handlers,
            PagesAllocated: self._allocated,
            PagesShared: self._shared,
            PagesReleased: self._released,
            SequenceAdded: self._arrived,
            SequenceFinished: self._finished,
            NamesStored: self._stored,
            NamesRemoved: self._removed,
            NamesCleared: self._cleared,
            StepCompleted: self._settle,
        }
        self.is_followed = False
        """Whether the producer's pool is a counted one, and reports names."""
        self.known = False
        self._resident = resident
        self._evicted = evicted
        self._depths = depths
        self._now_ns = now_ns
        self._paths = Paths()
        self._usable = 0
        self._most_used = 0
        self._taken = 0  # pages that were free or idle, ever
        self._waiting: dict[int, int] = {}  # by sequence: pages taken before it came

    @property
    def in_the_way(self) -> int:
        """Pages that a sequence refers to, and those in use once that hold nothing now."""
        pages = self.pages
        used = pages.num_active + pages.num_cached
        self._most_used = max(self._most_used, used)
        return pages.num_active + self._most_used - used

    @property
    def num_waiting(self) -> int:
        """Sequences that have come and not looked up anything."""
        return len(self._waiting)

    def references(self, name: BlockHash) -> int:
        """Running sequences that refer to this name."""
        return self._paths.references(name)

    def taken_since_arrival(self, event: PrefixLookup) -> int:
        """Pages that were taken from the pool while the sequence waited for its first lookup; 0
        also if it came before we watched."""
        return self._taken - self._waiting.pop(event.sequence, self._taken)

    def begin(self, event: PoolCreated | PoolCounted) -> None:
        """A pool was created, or a snapshot counts what is in it."""
        pages = self.pages
        if isinstance(event, PoolCounted):
            counts = (pages.num_private, pages.num_protected, pages.num_cached)
            if self.known and counts == (event.private, event.protected, event.cached):
                return  # another reader requested it
        pages.replace(event)
        self._usable = event.num_blocks - event.reserved
        self._most_used = 0
        self._paths.clear()
        if isinstance(event, PoolCreated) and self.is_followed:
            self._evicted.add(self._resident.replace([]), self._now_ns())
            self._depths.begin(event)
            self.known = True
        else:
            self._lose()

    def on_gap(self) -> None:
        self.pages.lose()
        self._paths.clear()
        self._waiting.clear()
        self._lose()

    def look_up(self, event: PrefixLookup) -> None:
        """Comes after the questions about the lookup."""
        if not (self.is_followed and event.named):
            return
        found = event.hashes[: event.hit_blocks]
        if not self.known:
            self._resident.add([name for name in found if name not in self._resident.names])
            self._complete()
        self._paths.look_up(event.sequence, event.hashes)

    def check(self) -> None:
        """Assert that the counts are those of the names; O(names)."""
        self._paths.check()
        if self.known:
            pages = self.pages
            assert len(self._resident.names) == pages.num_protected + pages.num_cached

    def _lose(self) -> None:
        self.known = False
        self._resident.replace([])
        self._depths.on_gap()

    def _complete(self) -> None:
        """Go on if all names are known by now."""
        pages = self.pages
        names = self._resident.names
        if not pages.known or len(names) < pages.num_protected + pages.num_cached:
            return
        self.known = True
        self._evicted.discard(names)
        idle = [name for name in names if name not in self._paths]
        self._depths.join(self._usable, idle)

    def _arrived(self, event: SequenceAdded) -> None:
        self._waiting[event.sequence] = self._taken

    def _finished(self, event: SequenceFinished) -> None:
        self._waiting.pop(event.sequence, None)

    def _allocated(self, event: PagesAllocated) -> None:
        self.pages.handlers[PagesAllocated](event)
        self._taken += event.pages

    def _shared(self, event: PagesShared) -> None:
        self.pages.handlers[PagesShared](event)
        self._taken += event.activated

    def _released(self, event: PagesReleased) -> None:
        self.pages.handlers[PagesReleased](event)
        if event.sequence is not None and event.cause in _ENDS:
            self._paths.end(event.sequence)

    def _stored(self, event: NamesStored) -> None:
        if event.tier != "device" or not self.is_followed:
            return
        names = event.names
        self._resident.add(names)
        strays = self._paths.store(names, event.parent)
        if self.known:
            self._evicted.discard(names)
            self._depths.cache(names, self._now_ns())
            if strays:
                self._depths.release(None, strays, ends=False)

    def _removed(self, event: NamesRemoved) -> None:
        if event.tier == "device" and self.is_followed:
            self._lost(event.names, for_room=True)

    def _cleared(self, event: NamesCleared) -> None:
        if event.tier == "device" and self.is_followed:
            self._lost(list(self._resident.names), for_room=False)
            self._depths.reset()
            if self.pages.known and not self.known:
                self._complete()

    def _lost(self, names: list[BlockHash], *, for_room: bool) -> None:
        gone = self._resident.remove(names)
        if self.known:
            self._evicted.add(gone, self._now_ns())
            self._depths.lose(names, gone, for_room=for_room)

    def _settle(self, event: StepCompleted) -> None:
        resident = self._resident.names
        for sequence, idle in self._paths.settle():
            names = [name for name in idle if name in resident]
            self._depths.release(sequence, names, ends=True)
        if not self.known:
            self._complete()
