"""The names that can be found in the pool now, and how many blocks hold each."""

from collections import Counter
from collections.abc import Sequence, Set

from kvscope_events.events import BlockHash


class Resident:
    """A set of names, and a count of the copies of those that have more than one block.

    Nearly every name has only one block, so an event is one operation on sets, which is three times
    as fast as a count for each name.
    """

    def __init__(self) -> None:
        self._names: set[BlockHash] = set()
        self._copies: dict[BlockHash, int] = {}  # beyond the first, never 0

    @property
    def names(self) -> Set[BlockHash]:
        """A live view."""
        return self._names

    @property
    def doubled(self) -> Set[BlockHash]:
        """Names that more than one block holds; a live view."""
        return self._copies.keys()

    def copies(self, name: BlockHash) -> int:
        """Blocks that hold this name."""
        return self._copies.get(name, 0) + (name in self._names)

    def replace(self, names: Sequence[BlockHash]) -> set[BlockHash]:
        """Replace all names by these, one block each; returns the names that are gone."""
        before, self._names = self._names, set(names)
        self._copies = {name: count - 1 for name, count in Counter(names).items() if count > 1}
        return before - self._names

    def add(self, names: Sequence[BlockHash]) -> None:
        """Count one more block for each of these names."""
        held = self._names
        size = len(held)
        if held.isdisjoint(names):
            held.update(names)
            if len(held) == size + len(names):
                return
            held.difference_update(names)  # one of them occurs twice: name by name
        copies = self._copies
        for name in names:
            if name in held:
                copies[name] = copies.get(name, 0) + 1
            else:
                held.add(name)

    def remove(self, names: Sequence[BlockHash]) -> Sequence[BlockHash]:
        """Count one block less for each of these names; returns those without any left."""
        copies = self._copies
        if not copies:
            self._names.difference_update(names)
            return names
        gone = []
        for name in names:
            left = copies.get(name)
            if left is None:
                self._names.discard(name)
                gone.append(name)
            elif left > 1:
                copies[name] = left - 1
            else:
                del copies[name]
        return gone
