"""The names that can be found in the pool now, how many blocks hold each, and how many of those
blocks are referenced.
"""

from collections import Counter
from collections.abc import Container, Iterable, Sequence, Set

from kvscope_events.events import BlockHash, PoolSnapshot


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


class Doubles:
    """Names held by several blocks, and how many of these blocks are referenced.

    Two sequences that compute the same content at the same time leave two blocks with it.
    `resident` counts the copies; it must have changed before a call here.
    """

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._referenced: dict[BlockHash, int] = {}  # of names with more than one block

    def replace(self, event: PoolSnapshot) -> None:
        """Take over a whole state."""
        doubled = self._resident.doubled
        self._referenced = dict.fromkeys(doubled, 0)
        if doubled:
            for name, references in zip(event.hashes, event.ref_counts, strict=False):
                if references and name is not None and name in doubled:
                    self._referenced[name] += 1

    def clear(self) -> None:
        """The pool is empty."""
        self._referenced.clear()

    def __len__(self) -> int:
        return len(self._referenced)

    def check(self) -> None:
        """Assert that only names with several blocks are kept."""
        assert self._referenced.keys() <= self._resident.doubled

    def is_referenced(self, name: BlockHash) -> bool:
        """Whether one of several blocks with this name is referenced."""
        return self._referenced.get(name, 0) > 0

    def write(self, names: Sequence[BlockHash], idle: Container[object]) -> None:
        """Referenced blocks got these names; idle: those of them that only idle blocks had."""
        doubled, referenced = self._resident.doubled, self._referenced
        if doubled.isdisjoint(names):
            return
        for name in names:
            if name in doubled:
                before = referenced.get(name)
                if before is None:
                    before = 0 if name in idle else 1
                referenced[name] = before + 1

    def share(self, names: Iterable[BlockHash]) -> None:
        """Idle blocks with these names are referenced again."""
        referenced = self._referenced
        if referenced:
            for name in names:
                if name in referenced:
                    referenced[name] += 1

    def release(self, names: Sequence[BlockHash]) -> Sequence[BlockHash]:
        """Blocks with these names are idle now; returns the names that no referenced block has."""
        referenced = self._referenced
        if not referenced or referenced.keys().isdisjoint(names):
            return names
        idle = []
        for name in names:
            left = referenced.get(name, 1) - 1
            if name in referenced:
                referenced[name] = max(0, left)
            if left <= 0:
                idle.append(name)
        return idle

    def lose(self, names: Iterable[BlockHash], *, were_referenced: bool) -> None:
        """Blocks lost these names."""
        referenced = self._referenced
        if not referenced:
            return
        doubled = self._resident.doubled
        for name in names:
            if name in referenced:
                if name not in doubled:
                    del referenced[name]
                elif were_referenced:
                    referenced[name] = max(0, referenced[name] - 1)
