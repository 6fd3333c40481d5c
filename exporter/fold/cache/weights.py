"""Weights of runs, summed from any of them to the newest."""


class Weights:
    """A Fenwick tree, the oldest weight in slot 1: tree[i] is the sum of the slots (i - lowest bit
    of i, i]. It grows at its end; all operations take O(log n)."""

    __slots__ = ("total", "tree")

    def __init__(self) -> None:
        self.tree = [0]
        self.total = 0

    def __len__(self) -> int:
        """The slot that comes next."""
        return len(self.tree)

    def append(self, weight: int) -> None:
        """The newest slot."""
        tree, slot = self.tree, len(self.tree)
        self.total += weight
        child = slot - 1
        first = slot & child
        while child > first:
            weight += tree[child]
            child &= child - 1
        tree.append(weight)

    def add(self, slot: int, change: int) -> None:
        """Change the weight of a slot."""
        tree, size = self.tree, len(self.tree)
        self.total += change
        while slot < size:
            tree[slot] += change
            slot += slot & -slot

    def above(self, slot: int) -> int:
        """Sum of all newer slots."""
        tree, below = self.tree, 0
        while slot:
            below += tree[slot]
            slot &= slot - 1
        return self.total - below
