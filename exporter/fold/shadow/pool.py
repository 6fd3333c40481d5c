"""A pool of another size in names only: who references a name, and in which order idle ones go.

Free blocks without a name are handed out first, then idle names, the one released longest ago
first. A name may have several blocks; look-ups find the first of them. What is referenced may
exceed the pool: then it owes blocks, and whatever is released pays them back.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import takewhile

Digest = bytes
"""Name of a block without its group."""
_SLACK = 1024
"""Entries of the queue of idle blocks beyond twice the pool before it is swept."""


class Block:
    """A block that holds something findable."""

    __slots__ = ("digest", "names", "queued", "references")

    def __init__(self, digest: Digest, names: "Names") -> None:
        self.digest = digest
        self.names = names
        self.references = 1
        self.queued = 0
        """Its entries in the queue; only the last one counts."""


Names = dict[Digest, "Block | list[Block]"]
"""Findable blocks of one group; a list: several with one name, the oldest first."""
UNNAMED = Block(b"", {})
"""Stands in a table for any block without a name."""
Table = list[Block | None]
"""Blocks of a sequence in one group, by position; None: given back, or never held."""


class Pool:
    def __init__(self, capacity: int, groups: int) -> None:
        self.capacity = capacity
        self.names: tuple[Names, ...] = tuple({} for _ in range(groups))
        """By group."""
        self.handed_out = 0
        """Blocks handed out since the pool began."""
        self.has_evicted = False
        self.has_owed = False
        """More was referenced than there are blocks: the real pool would have made some wait."""
        self.vacant = capacity
        """Free blocks that hold nothing; negative: referenced blocks that exceed the pool."""
        self._idle: deque[Block] = deque()

    def find(self, group: int, digest: Digest) -> Block | None:
        """The block that a look-up finds."""
        block = self.names[group].get(digest)
        return block[0] if isinstance(block, list) else block

    def leading(self, group: int, digests: Sequence[Digest]) -> int:
        """The number of these that are findable before the first that is not."""
        return sum(1 for _ in takewhile(self.names[group].__contains__, digests))

    def share(self, group: int, digests: Iterable[Digest]) -> Table:
        """Reference the blocks that a look-up has found."""
        names, table = self.names[group], []
        for digest in digests:
            block = names[digest]
            if isinstance(block, list):
                block = block[0]
            block.references += 1
            table.append(block)
        return table  # type: ignore[return-value]

    def take(self, count: int) -> None:
        """Hand out blocks, with one reference each."""
        self.handed_out += count
        self.vacant -= count
        if self.vacant < 0:
            self._evict()

    def name(self, group: int, digest: Digest) -> Block:
        """A referenced block without a name becomes findable."""
        names = self.names[group]
        block = Block(digest, names)
        there = names.get(digest)
        if there is None:
            names[digest] = block
        elif isinstance(there, list):
            there.append(block)
        else:
            names[digest] = [there, block]
        return block

    def name_all(self, group: int, digests: Sequence[Digest]) -> Table:
        """Several referenced blocks without names become findable."""
        names = self.names[group]
        if len(digests) < 2 or not names.keys().isdisjoint(digests):
            return [self.name(group, digest) for digest in digests]
        blocks: Table = [Block(digest, names) for digest in digests]
        names.update(zip(digests, blocks, strict=True))  # type: ignore[arg-type]
        return blocks

    def release(self, blocks: Iterable[Block | None]) -> None:
        """Give back one reference each; what is idle then is evicted in this order."""
        idle, vacant = self._idle, self.vacant
        for block in blocks:
            if block is UNNAMED:
                vacant += 1
            elif block is not None:
                block.references -= 1
                if not block.references:
                    block.queued += 1
                    idle.append(block)
        self.vacant = vacant
        if vacant < 0:
            self._evict()
        elif len(idle) > 2 * self.capacity + _SLACK:
            self._sweep()

    def resize(self, capacity: int) -> None:
        """Have this number of blocks from now on."""
        self.vacant += capacity - self.capacity
        self.capacity = capacity
        if self.vacant < 0:
            self._evict()

    def forget(self, group: int, digest: Digest) -> None:
        """This name is not valid: none of its blocks can be found again."""
        blocks = self.names[group].pop(digest, None)
        for block in blocks if isinstance(blocks, list) else () if blocks is None else (blocks,):
            block.names = {}
            block.digest = b""

    def reset(self) -> None:
        """Forget every idle name."""
        self._sweep()
        for block in self._idle:
            block.queued = 0
            _remove(block)
        self.vacant += len(self._idle)
        self._idle.clear()

    def check(self, tables: Iterable[Table]) -> None:
        """Assert that references and free blocks are those of the tables; O(names)."""
        held: dict[int, int] = {}
        unnamed = 0
        for table in tables:
            for block in table:
                if block is UNNAMED:
                    unnamed += 1
                elif block is not None:
                    held[id(block)] = held.get(id(block), 0) + 1
                    assert block.references
        self._sweep()
        assert all(not block.references for block in self._idle)
        assert len(held) + unnamed + len(self._idle) + self.vacant == self.capacity
        assert self.vacant >= 0 or not self._idle
        for names in self.names:
            for found in names.values():
                for block in found if isinstance(found, list) else (found,):
                    assert block.references == held.get(id(block), 0)

    def _evict(self) -> None:
        """Vacate idle blocks until none is owed, or none is left."""
        idle, vacant = self._idle, self.vacant
        while vacant < 0 and idle:
            block = idle.popleft()
            block.queued -= 1
            if block.queued or block.references:
                continue  # it was referenced again since
            _remove(block)
            self.has_evicted = True
            vacant += 1
        self.vacant = vacant
        if vacant < 0:
            self.has_owed = True

    def _sweep(self) -> None:
        """Drop the entries that no longer count."""
        kept: deque[Block] = deque()
        for block in self._idle:
            block.queued -= 1
            if not block.queued and not block.references:
                kept.append(block)
        for block in kept:
            block.queued = 1
        self._idle = kept


def _remove(block: Block) -> None:
    names, digest = block.names, block.digest
    found = names.get(digest)
    if found is block:
        del names[digest]
    elif isinstance(found, list):
        found.remove(block)
        if not found:
            del names[digest]
