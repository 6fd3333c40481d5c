"""Names that running sequences refer to, where blocks are only counted.

A sequence refers to the path that it looked up, and to what was made findable behind the end of
that path. References are given back together: its names without another reference are idle then.
What a sequence leaves when it ends may be named after its release: so releases wait for `settle`.
"""

from collections.abc import Iterator, Sequence

from kvscope_events.events import BlockHash


class Paths:
    """Bounded by the running sequences: `clear` forgets those of which the end was lost."""

    def __init__(self) -> None:
        self._paths: dict[int, list[BlockHash]] = {}  # by running sequence
        self._ending: list[tuple[int, list[BlockHash]]] = []
        self._ends: dict[BlockHash, list[BlockHash]] = {}  # by last name: the path, running or not
        self._references: dict[BlockHash, int] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, name: BlockHash) -> bool:
        """Whether a sequence refers to it."""
        return name in self._references

    def references(self, name: BlockHash) -> int:
        """Running sequences that refer to it."""
        return self._references.get(name, 0)

    def clear(self) -> None:
        for part in (self._paths, self._ending, self._ends, self._references):
            part.clear()

    def look_up(self, sequence: int, names: Sequence[BlockHash]) -> None:
        """A sequence was admitted with this path; what it has not found it will compute."""
        self.end(sequence)
        path = self._paths[sequence] = list(names)
        references = self._references
        for name in path:
            references[name] = references.get(name, 0) + 1
        if path:
            self._ends[path[-1]] = path

    def store(self, names: Sequence[BlockHash], parent: BlockHash | None) -> list[BlockHash]:
        """Names became findable, each a child of the one before.

        Returns those that no sequence refers to.
        """
        references, strays = self._references, []
        for name in names:
            if name not in references:
                path = None if parent is None else self._ends.pop(parent, None)
                if path is None:
                    strays.append(name)
                else:
                    path.append(name)
                    references[name] = 1
                    self._ends[name] = path
            parent = name
        return strays

    def end(self, sequence: int) -> None:
        """A sequence gives all back."""
        path = self._paths.pop(sequence, None)
        if path is not None:
            self._ending.append((sequence, path))

    def settle(self) -> Iterator[tuple[int, list[BlockHash]]]:
        """The sequences that have ended, with the names that nothing refers to any more, in the
        order of their path."""
        references = self._references
        for sequence, path in self._ending:
            idle = []
            for name in path:
                left = references[name] - 1
                if left:
                    references[name] = left
                else:
                    del references[name]
                    idle.append(name)
            if path and self._ends.get(path[-1]) is path:
                del self._ends[path[-1]]
            yield sequence, idle
        self._ending.clear()

    def check(self) -> None:
        """Assert that the references are those of the paths; O(names)."""
        counts: dict[BlockHash, int] = {}
        for path in (*self._paths.values(), *(path for _, path in self._ending)):
            for name in path:
                counts[name] = counts.get(name, 0) + 1
        assert counts == self._references
