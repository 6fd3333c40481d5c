"""Names that larger pools would hold and that a sequence is computing again."""

from collections.abc import Iterable, Sequence, Set

from exporter.fold.cache.run_stack import Segment
from kvscope_events.events import BlockHash


class Recomputed:
    """Kept from the lookup that missed them until they are cached or their sequence ends.

    limit: maximum number of names, summed over sequences; beyond it all are forgotten, so that
    sequences that never end cannot fill the memory.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._distances: dict[BlockHash, int] = {}
        self._names_of: dict[int, Sequence[BlockHash]] = {}
        self._held = 0  # names in _names_of

    def __len__(self) -> int:
        return len(self._names_of)

    def check(self, resident: Set[BlockHash]) -> None:
        """Assert that no kept name is findable, and that the limit holds."""
        assert resident.isdisjoint(self._distances)
        assert self._held == sum(map(len, self._names_of.values())) <= self._limit

    def begin(self, sequence: int, names: Sequence[BlockHash], distances: Iterable[int]) -> None:
        """A sequence begins to compute exactly these, whose distances were just measured."""
        self.end(sequence)
        if self._held + len(names) > self._limit:
            self._distances.clear()
            self._names_of.clear()
            self._held = 0
            if len(names) > self._limit:
                return
        self._held += len(names)
        self._distances.update(zip(names, distances, strict=True))
        self._names_of[sequence] = names

    def leading(self, path: Sequence[BlockHash], start: int) -> list[Segment]:
        """The distances of the leading blocks of path[start:] that are kept, one by one."""
        get = self._distances.get
        found: list[Segment] = []
        if self._distances:
            for name in path[start:]:
                distance = get(name)
                if distance is None:
                    break
                found.append((distance, 1))
        return found

    def cache(self, names: Iterable[BlockHash]) -> None:
        """These names can be found again."""
        if self._distances:
            for name in names:
                self._distances.pop(name, None)

    def end(self, sequence: int) -> None:
        """The sequence gave its blocks back."""
        if self._names_of:
            names = self._names_of.pop(sequence, ())
            self._held -= len(names)
            self.cache(names)
