"""Cached blocks in LRU order: a doubly linked list threaded through two lists of ints, all O(1)."""

from collections.abc import Iterator, Sequence


class LruEvictor:
    """Holds block ids in [0, num_blocks), the next to be evicted first.

    The links of an absent block are meaningless; the pool knows which are present. Two machine
    words a block, allocated once: no objects are created or freed with blocks.
    """

    def __init__(self, num_blocks: int) -> None:
        self._head = num_blocks  # sentinel: its next is the oldest block, its previous the newest
        self._next = [0] * num_blocks + [num_blocks]
        self._previous = [0] * num_blocks + [num_blocks]
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        block = self._next[self._head]
        while block != self._head:
            yield block
            block = self._next[block]

    def extend(self, blocks: Sequence[int]) -> None:
        """Add absent blocks as the newest, the last of them the very newest."""
        following, previous, head = self._next, self._previous, self._head
        newest = previous[head]
        for block in blocks:
            following[newest] = block
            previous[block] = newest
            newest = block
        following[newest] = head
        previous[head] = newest
        self._size += len(blocks)

    def remove(self, block: int) -> None:
        """Take a present block out of the middle."""
        before, after = self._previous[block], self._next[block]
        self._next[before] = after
        self._previous[after] = before
        self._size -= 1

    def pop(self, count: int) -> list[int]:
        """Take the `count` oldest, oldest first; count <= len(self)."""
        following, head = self._next, self._head
        blocks = []
        block = following[head]
        for _ in range(count):
            blocks.append(block)
            block = following[block]
        following[head] = block
        self._previous[block] = head
        self._size -= count
        return blocks
