"""Evicted names: a window of the newest, with the time of each eviction."""

from collections import Counter, deque
from collections.abc import Iterable

from exporter.fold.cache.forgotten import Forgotten
from kvscope_events.events import BlockHash


class Evicted:
    """The last names evicted, in order; the oldest fall out into `forgotten`.

    A name that is resident again is not in the window.
    """

    def __init__(self, window: int, forgotten: Forgotten) -> None:
        self.forgotten = forgotten
        self._window = window
        self._times_ns: dict[BlockHash, int] = {}
        # Deleting a dict's first key again and again leaves a gap that each look-up of the first
        # key walks over, so the order is kept separately. A name that came back to the pool stays
        # in it; `_stale` counts such entries, which are removed when there are too many.
        self._order: deque[BlockHash] = deque()
        self._stale: dict[BlockHash, int] = {}

    def __len__(self) -> int:
        return len(self._times_ns)

    def __contains__(self, name: BlockHash) -> bool:
        return name in self._times_ns

    def time_ns(self, name: BlockHash) -> int | None:
        """When the name was evicted, on the producer's clock; None: it is not in the window.

        NEVER: it was evicted in batches that were lost.
        """
        return self._times_ns.get(name)

    def times_ns(self, names: Iterable[BlockHash]) -> list[int | None]:
        """The same for each of these names."""
        return list(map(self._times_ns.get, names))

    def add(self, names: Iterable[BlockHash], time_ns: int) -> None:
        """Add names that have just lost their last block."""
        times_ns, append = self._times_ns, self._order.append
        for name in names:
            if name not in times_ns:  # otherwise it was evicted without having been resident
                times_ns[name] = time_ns
                append(name)
        if len(times_ns) > self._window:
            self._shrink()
        if len(self._order) > 2 * self._window:
            self._order = deque(times_ns)
            self._stale.clear()

    def discard(self, names: Iterable[BlockHash]) -> None:
        """Remove names that are resident again."""
        times_ns = self._times_ns
        if times_ns.keys().isdisjoint(names):
            return
        stale = self._stale
        for name in names:
            if times_ns.pop(name, None) is not None:
                stale[name] = stale.get(name, 0) + 1

    def check(self) -> None:
        """Assert that the order holds each name once, beside its stale entries; O(window)."""
        assert Counter(self._order) == Counter(self._stale) + Counter(iter(self._times_ns))
        assert len(self._times_ns) <= self._window
        assert len(self._order) <= 2 * self._window

    def _shrink(self) -> None:
        times_ns, order, stale = self._times_ns, self._order, self._stale
        out = []
        while len(times_ns) > self._window:
            name = order.popleft()
            if name in stale:
                if stale[name] == 1:
                    del stale[name]
                else:
                    stale[name] -= 1
            else:
                del times_ns[name]
                out.append(name)
        self.forgotten.add(out)
