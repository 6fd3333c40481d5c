"""Regret: prompt tokens computed again because their blocks had been evicted."""

from collections.abc import Sequence

from kvscope_exporter.state.cache.shortfall import Shortfall


class Regret:
    """Counts first lookups only: losses of a preempted sequence belong to the cost of preemption.

    Evictions and lookups in lost batches are not counted.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._shortfall = Shortfall()
        self._time_ns = 0
        self._is_first = False

    def begin(self) -> None:
        """A new pool, perhaps of another size: the former one's shortfall no longer matters."""
        self._shortfall.clear()

    def look_up(
        self, evicted_ns: Sequence[int | None], *, is_first: bool, block_size: int, time_ns: int
    ) -> None:
        """A lookup: for each missed block the time of its eviction.

        None: it was not evicted, or a tier below the pool or a connector supplies it.
        Comes before the calls of `too_far` for the same lookup.
        """
        self._time_ns, self._is_first = time_ns, is_first
        if not is_first or not evicted_ns:
            return
        blocks = len(evicted_ns) - evicted_ns.count(None)
        self.tokens += blocks * block_size
        if blocks:
            self._shortfall.regret(blocks, time_ns)

    def too_far(self, blocks_too_small: int, count: int) -> None:
        """Count missed blocks of the present lookup that a larger pool would have held.

        The first would have needed `blocks_too_small` more blocks, each further one block more.
        """
        if self._is_first:
            self._shortfall.too_far(blocks_too_small, count, self._time_ns)

    def shortfall_blocks(self, now_ns: int) -> int | None:
        """Additional blocks that would have kept nine tenths of those regretted in the last 5
        minutes.

        now_ns: on the producer's clock. None: nothing was regretted, or the distances of more than
        a tenth are not known.
        """
        return self._shortfall.blocks(now_ns)
