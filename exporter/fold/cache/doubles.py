"""Names held by several blocks, and how many of these blocks are referenced.

Two sequences that compute the same content at the same time leave two blocks with it.
"""

from collections.abc import Container, Iterable, Sequence

from exporter.fold.cache.resident import Resident
from kvscope_events.events import BlockHash, PoolSnapshot


class Doubles:
    """`resident` counts the copies; it must have changed before a call here."""

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
