"""Blocks that follow one another in a prompt and share their fate: one step for many of them.

A name determines all that precede it, so it has the same place in every prompt, and prompts that
have a name in common have all names before it in common.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import takewhile

Digest = bytes
"""Name of a block without its group."""
UNPLACED = -1
"""Place of one block before a look-up finds it, of a sequence that is not known."""


class Names(dict[Digest, "Run"]):
    """Findable blocks of one group, the oldest of each name."""

    def __init__(self) -> None:
        super().__init__()
        self.younger: dict[Digest, list[Run]] = {}
        """Further blocks with these names, in order."""

    def point(self, digests: Iterable[Digest], run: "Run") -> None:
        """These names find this run from now on."""
        for digest in digests:
            self[digest] = run


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
        """The index that finds its blocks; None: they have no names."""
        self.digests = digests or []
        self.references = 1
        self.entry: list[Run] | None = None
        """While it is idle: all that was released in the same call, in order."""
        self.is_alone = True
        """No other block has one of its names."""
        self.halves: tuple[Run, Run] | None = None
        """Its parts, if it was cut while tables had it: these have both instead."""

    def is_ours(self, names: Names) -> bool:
        """Whether the one table that has it may add to it."""
        return self.names is names and self.references == 1 and self.is_alone and not self.halves

    def at(self, place: int) -> int:
        """Its first place, if it has a block at this one."""
        if self.first == UNPLACED:
            self.first, self.end = place, place + 1
        return self.first

    def until(self, digests: Sequence[Digest], place: int, limit: int) -> int:
        """Up to where, at most `limit`, a look-up finds this run, if it does at `place`."""
        if self.first == UNPLACED:
            self.at(place)
        first, end = self.first, self.end
        if end > limit:
            end = limit
        if not self.is_alone:
            assert self.names is not None
            found = map(self.names.get, digests[place:end])
            return place + sum(1 for _ in takewhile(lambda run: run is self, found))
        own = self.digests
        if own[end - 1 - first] == digests[end - 1]:
            return end
        places = range(place, end)
        return place + bisect_left(places, True, key=lambda i: own[i - first] != digests[i])

    def cut(self, place: int, tables: int = 0) -> "tuple[Run, Run]":
        """Make two of it, the second from this place on.

        tables: those that have it and replace it themselves; others find its halves.
        """
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
            self.names.point(self.digests, after)
            after.first, after.digests = self.first, self.digests + after.digests
            return after
        self.names.point(after.digests, self)
        self.end = after.end
        self.digests += after.digests
        return self

    def follow(self) -> None:
        """All its names have older blocks already."""
        assert self.names is not None
        self.is_alone = False
        for digest in self.digests:
            self.names[digest].is_alone = False
            self.names.younger.setdefault(digest, []).append(self)

    def lose(self, count: int) -> None:
        """Its last blocks are evicted."""
        gone = self.digests[-count:]
        del self.digests[-count:]
        self.end -= count
        self._leave(gone)

    def hide(self) -> None:
        """Its names are not valid, though its blocks stay."""
        self._leave(self.digests)
        self.names, self.is_alone = Names(), True
        self.names.point(self.digests, self)

    def check(self) -> None:
        """Assert that each of its names finds it, among others if it is not alone."""
        assert self.names is not None
        assert len(self.digests) == self.end - self.first > 0
        assert (self.entry is None) == (self.references > 0)
        for digest in self.digests:
            others = self.names.younger.get(digest, [])
            assert (self.names[digest] is self) != (self in others)
            assert not (others and self.is_alone)

    def _leave(self, gone: list[Digest]) -> None:
        names = self.names
        assert names is not None
        if self.is_alone:
            for digest in gone:
                del names[digest]
            return
        for digest in gone:
            younger = names.younger.get(digest, [])
            if names[digest] is not self:
                younger.remove(self)
            elif younger:
                names[digest] = younger.pop(0)
            else:
                del names[digest]
            if not younger:
                names.younger.pop(digest, None)

    def _part(self, first: int, end: int, digests: list[Digest]) -> "Run":
        """A run of some of its blocks, which are found there from now on."""
        names = self.names
        part = Run(first, end, names, digests)
        part.references, part.entry, part.is_alone = self.references, self.entry, self.is_alone
        if names is None:
            return part
        if self.is_alone:
            names.point(digests, part)
            return part
        for digest in digests:
            if names[digest] is self:
                names[digest] = part
            else:
                younger = names.younger[digest]
                younger[younger.index(self)] = part
        return part


UNNAMED = Run(0, 1)
"""Any one block without a name."""
