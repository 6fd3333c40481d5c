"""Residency of blocks: lifetime, idleness before eviction, gap before reuse, retention.

Covers every block, not a sample.
"""

from collections import Counter

from kvscope_events.vocabulary import SharingCause
from kvscope_exporter.state import buckets
from kvscope_exporter.state.cache.ages import observe_ages, times_of
from kvscope_exporter.state.cache.blocks import NEVER, Blocks
from kvscope_exporter.state.histogram import Histogram

_BOUNDS = buckets.merged(buckets.RESIDENCY_SECONDS, buckets.VLLM_RESIDENCY_SECONDS)


class Residency:
    """Reads the blocks' times before each event changes them.

    After lost batches nothing is known about the resident blocks except that they are resident:
    they are left out until they are written or released again.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.lifetime_seconds = Histogram(_BOUNDS)
        """From becoming findable to eviction for lack of room."""
        self.idle_seconds = Histogram(_BOUNDS)
        """From the last reference to eviction for lack of room."""
        self.reuse_seconds = Histogram(_BOUNDS)
        """From the last reference to the next one, by a prefix hit."""
        self.unknown = {"lifetime": 0, "idle": 0, "reuse": 0}
        """Blocks that each histogram lacks because it began before we watched."""
        self.otherwise_blocks = 0
        """Idle blocks that lost their content for a reason other than lack of room."""
        # Idle blocks by the time since which they are idle, in order, so that the first belongs to
        # the next block to be evicted. NEVER (before we watched) comes before all others.
        self._idle: dict[int, int] = {}

    @property
    def idle(self) -> dict[int, int]:
        """Idle blocks by the time since which they are idle; NEVER: since before we watched."""
        return self._idle

    def begin(self) -> None:
        """The blocks were replaced by a whole state, without times."""
        idle = sum(self._blocks.is_idle)
        self._idle = {NEVER: idle} if idle else {}

    def oldest_idle_ns(self) -> int | None:
        """Since when the next block to be evicted has been idle; None: no such block, or unknown.

        Passes the gaps that deleted times leave in the dict: at most as many as it has room for.
        """
        oldest = next(iter(self._idle), NEVER)
        return None if oldest == NEVER else oldest

    def release(self, blocks: int, time_ns: int) -> None:
        """This many blocks became idle."""
        if blocks:
            self._idle[time_ns] = self._idle.get(time_ns, 0) + blocks

    def share(self, idle: list[int], cause: SharingCause, time_ns: int) -> None:
        """These idle blocks are about to get a reference again."""
        if idle:
            since_ns = times_of(self._blocks.idle_ns, idle)
            observed = self.reuse_seconds if cause == "prefix_hit" else None
            self.unknown["reuse"] += self._end_idle(since_ns, time_ns, observed)

    def lose(self, blocks: list[int], time_ns: int, *, for_room: bool) -> None:
        """These blocks are about to lose their content; the unreferenced ones count."""
        idle, since_ns = self._idle_among(blocks)
        if not idle:
            return
        if not for_room:
            self._end_idle(since_ns, time_ns, None)
            self.otherwise_blocks += len(idle)
            return
        self.unknown["idle"] += self._end_idle(since_ns, time_ns, self.idle_seconds)
        written_ns = times_of(self._blocks.written_ns, idle)
        self.unknown["lifetime"] += observe_ages(self.lifetime_seconds, written_ns, time_ns)

    def check(self) -> None:
        """Assert that the idle blocks are those of the pool, in order; O(num_blocks)."""
        blocks = self._blocks
        times = (t for t, idle in zip(blocks.idle_ns, blocks.is_idle, strict=True) if idle)
        assert Counter(self._idle) == Counter(times)

    def _idle_among(self, blocks: list[int]) -> tuple[list[int], list[int]]:
        """The unreferenced ones among these blocks, and since when."""
        idle_ns = self._blocks.idle_ns
        try:
            since_ns = times_of(idle_ns, blocks)
        except IndexError:  # beyond the pool
            pass
        else:
            if blocks and NEVER not in since_ns and min(blocks) >= 0:
                return blocks, since_ns  # all of them are idle, as expected
        idle = self._blocks.idle_among(blocks)
        return idle, times_of(idle_ns, idle)

    def _end_idle(self, since_ns: list[int], time_ns: int, observed: Histogram | None) -> int:
        """Blocks idle since these times no longer are; returns how many NEVERs were to be observed.

        Blocks that were released together mostly leave together, so there is nearly always one
        time.
        """
        first, count = since_ns[0], len(since_ns)
        one = count == 1 or since_ns.count(first) == count
        unknown = 0
        for since, blocks in ((first, count),) if one else Counter(since_ns).items():
            left = self._idle.get(since, 0) - blocks
            if left > 0:
                self._idle[since] = left
            else:  # below zero: events contradict each other, which the ledger shows
                self._idle.pop(since, None)
            if observed is None:
                continue
            if since == NEVER:
                unknown += blocks
            else:
                observed.observe(max(0, time_ns - since) / 1e9, blocks)
        return unknown
