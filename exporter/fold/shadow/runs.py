"""Blocks that follow one another in a prompt and share their fate: one step for many of them.

A name determines all that precede it, so it has the same place in every prompt, and prompts that
have a name in common have all names before it in common.
"""

from bisect import bisect_left
from collections.abc import Sequence

Digest = bytes
"""Name of a block without its group."""
Names = dict[Digest, "Run | list[Run]"]
"""Findable blocks of one group; a list: several with one name, the oldest first."""
UNPLACED = -1
"""Place of one block before a look-up finds it, of a sequence that is not known."""


class Run:
    """Blocks of one pool and group that are referenced and released together."""

    __slots__ = ("digests", "end", "entry", "first", "halves", "is_alone", "names", "references")

    def __init__(
        self, first: int, end: int, names: Names | None = None, digests: list[Digest] | None = None
    ) -> None:
        self.first = first
        """Place of its first block in the sequence."""
        self.end = end
        self.names = names
        """Where its blocks can be found; None: they have no names."""
        self.digests = digests or []
        self.references = 1
        self.entry: list[Run] | None = None
        """Of an idle one: what was released with it, in order."""
        self.is_alone = True
        """No other block has one of its names."""
        self.halves: tuple[Run, Run] | None = None
        """What it was cut into while tables had it, which then have both."""

    def at(self, place: int) -> int:
        """Its first place, if it has a block at this one."""
        if self.first == UNPLACED:
            self.first, self.end = place, place + 1
        return self.first

    def until(self, digests: Sequence[Digest], place: int, limit: int) -> int:
        """Up to where, at most `limit`, a look-up finds this run, if it does at `place`."""
        first, end = self.first, self.end
        if first == UNPLACED:
            first, end = self.at(place), self.end
        if end > limit:
            end = limit
        if not self.is_alone:
            assert self.names is not None
            for index in range(place + 1, end):
                found = self.names.get(digests[index])
                if (found[0] if isinstance(found, list) else found) is not self:
                    return index
            return end
        own = self.digests
        if own[end - 1 - first] == digests[end - 1]:
            return end
        places = range(place, end)
        return place + bisect_left(places, True, key=lambda i: own[i - first] != digests[i])

    def cut(self, place: int, tables: int = 0) -> "tuple[Run, Run]":
        """Make two of it, the second from this place on; `tables` of those that have it know."""
        middle = place - self.first
        left, right = self.digests[:middle], self.digests[middle:]
        if self.references != tables:
            self.halves = self._part(self.first, place, left), self._part(place, self.end, right)
            self.digests = []
            return self.halves
        # It can go on as the larger one.
        if len(left) < len(right):
            pair = self._part(self.first, place, left), self
            self.first, self.digests = place, right
        else:
            pair = self, self._part(place, self.end, right)
            self.end, self.digests = place, left
        if self.entry is not None:
            index = self.entry.index(self)
            self.entry[index : index + 1] = pair
        return pair

    def join(self, after: "Run") -> "Run":
        """Make one of this and the next one, if both are alone and have the same only holder."""
        assert self.names is not None
        if len(self.digests) < len(after.digests):
            self.names.update(dict.fromkeys(self.digests, after))
            after.first, after.digests = self.first, self.digests + after.digests
            return after
        self.names.update(dict.fromkeys(after.digests, self))
        self.end = after.end
        self.digests += after.digests
        return self

    def follow(self) -> None:
        """All its names have older blocks already."""
        assert self.names is not None
        self.is_alone = False
        for digest in self.digests:
            found = self.names[digest]
            if isinstance(found, list):
                found.append(self)
            else:
                found.is_alone = False
                self.names[digest] = [found, self]

    def lose(self, count: int) -> None:
        """Its last blocks are evicted."""
        names, digests = self.names, self.digests
        assert names is not None
        gone = digests[-count:]
        del digests[-count:]
        self.end -= count
        if self.is_alone:
            for digest in gone:
                del names[digest]
            return
        for digest in gone:
            found = names[digest]
            if isinstance(found, list):
                found.remove(self)
            if found is self or not found:
                del names[digest]

    def check(self) -> None:
        """Assert that each of its names finds it, among others if it is not alone."""
        assert self.names is not None
        assert len(self.digests) == self.end - self.first > 0
        assert (self.entry is None) == (self.references > 0)
        for digest in self.digests:
            found = self.names[digest]
            if found is not self:
                assert not self.is_alone
                assert isinstance(found, list)
                assert self in found

    def _part(self, first: int, end: int, digests: list[Digest]) -> "Run":
        """A run of some of its blocks, which are found there from now on."""
        names = self.names
        part = Run(first, end, names, digests)
        part.references, part.entry, part.is_alone = self.references, self.entry, self.is_alone
        if names is None:
            return part
        if self.is_alone:
            names.update(dict.fromkeys(digests, part))
            return part
        for digest in digests:
            found = names[digest]
            if isinstance(found, list):
                found[found.index(self)] = part
            else:
                names[digest] = part
        return part


UNNAMED = Run(0, 1)
"""Any one block without a name."""
