"""How long blocks stay: lifetime, idleness before eviction, gap before reuse, retention.

Of every block, not of a sample. Blocks that stop being idle have few different times, since all
that one release names have the same, so they are counted by time first.
"""

from array import array
from collections import Counter
from collections.abc import Iterable

from exporter.buckets import RESIDENCY_SECONDS
from exporter.fold.cache.blocks import NEVER, Blocks
from exporter.fold.histogram import Histogram
from kvscope_events.vocabulary import SharingCause


class Residency:
    """Reads the blocks' times before each event changes them.

    After lost batches nothing is known of the blocks that are resident then but that they are: they
    are left out until they have been written, or released, again.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.lifetime_seconds = Histogram(RESIDENCY_SECONDS)
        """From findable to evicted for want of room."""
        self.idle_seconds = Histogram(RESIDENCY_SECONDS)
        """From the last reference to the eviction for want of room."""
        self.reuse_seconds = Histogram(RESIDENCY_SECONDS)
        """From the last reference to the next one, by a prefix hit."""
        self.unknown = {"lifetime": 0, "idle": 0, "reuse": 0}
        """Blocks that each histogram lacks because it began before we watched."""
        self.otherwise_blocks = 0
        """Idle blocks that lost their content by another cause than want of room."""
        # Blocks by the time since which they are idle, in order of time, so that the first is that
        # of the next block to be evicted. NEVER (before we watched) comes before all others.
        self._idle: dict[int, int] = {}

    @property
    def idle(self) -> dict[int, int]:
        """Idle blocks by the time since which they are; NEVER: since before we watched."""
        return self._idle

    def begin(self) -> None:
        """The blocks were replaced by a whole state, without times."""
        idle = sum(self._blocks.is_idle)
        self._idle = {NEVER: idle} if idle else {}

    def oldest_idle_ns(self) -> int | None:
        """Since when the next block to be evicted is idle; None: there is none, or it is unknown.

        Passes the gaps that deleted times leave in the dict: at most as many as it has room for.
        """
        oldest = next(iter(self._idle), NEVER)
        return None if oldest == NEVER else oldest

    def release(self, blocks: int, time_ns: int) -> None:
        """So many blocks became idle."""
        if blocks:
            self._idle[time_ns] = self._idle.get(time_ns, 0) + blocks

    def share(self, idle: list[int], cause: SharingCause, time_ns: int) -> None:
        """These idle blocks are about to have a reference again."""
        for since_ns, count in _times(self._blocks.idle_ns, idle):
            self._end_idle(since_ns, count)
            if cause != "prefix_hit":
                continue
            if since_ns == NEVER:
                self.unknown["reuse"] += count
            else:
                self.reuse_seconds.observe(max(0, time_ns - since_ns) / 1e9, count)

    def lose(self, blocks: list[int], time_ns: int, *, for_room: bool) -> None:
        """These blocks are about to lose their content; those that nobody references count."""
        idle = self._blocks.idle_among(blocks)
        for since_ns, count in _times(self._blocks.idle_ns, idle):
            self._end_idle(since_ns, count)
            if not for_room:
                self.otherwise_blocks += count
            elif since_ns == NEVER:
                self.unknown["idle"] += count
            else:
                self.idle_seconds.observe(max(0, time_ns - since_ns) / 1e9, count)
        if not for_room:
            return
        for written_ns, count in _times(self._blocks.written_ns, idle):
            if written_ns == NEVER:
                self.unknown["lifetime"] += count
            else:
                self.lifetime_seconds.observe(max(0, time_ns - written_ns) / 1e9, count)

    def check(self) -> None:
        """Assert that the idle blocks are those of the pool, in order; O(num_blocks)."""
        blocks = self._blocks
        times = (t for t, idle in zip(blocks.idle_ns, blocks.is_idle, strict=True) if idle)
        assert Counter(self._idle) == Counter(times)

    def _end_idle(self, since_ns: int, count: int) -> None:
        left = self._idle.get(since_ns, 0) - count
        if left > 0:
            self._idle[since_ns] = left
        else:  # less than none: events contradict each other, which the ledger shows
            self._idle.pop(since_ns, None)


def _times(times_ns: "array[int]", blocks: list[int]) -> Iterable[tuple[int, int]]:
    """The times of these blocks, each once, with the number of blocks."""
    if len(blocks) < 2:  # as in decode; a Counter takes a microsecond to make
        return [(times_ns[block], 1) for block in blocks]
    return Counter(map(times_ns.__getitem__, blocks)).items()
