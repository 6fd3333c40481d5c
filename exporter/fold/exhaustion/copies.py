"""Copies that forked sequences have yet to make: of last blocks that are shared and not full."""

from collections.abc import Sequence


class Copies:
    """Every owner of such a block except the last one copies it before writing its next token."""

    def __init__(self) -> None:
        self.owed = 0
        self._owners: dict[int, int] = {}  # of such blocks, at least two

    def clear(self) -> None:
        self.owed = 0
        self._owners.clear()

    def share(self, block: int) -> None:
        """A block that is not full has one more owner."""
        self._owners[block] = self._owners.get(block, 1) + 1
        self.owed += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Each of these blocks has one owner less, and still has others."""
        owners = self._owners
        if not owners:
            return
        for block in blocks:
            if block in owners:
                self.owed -= 1
                owners[block] -= 1
                if owners[block] == 1:
                    del owners[block]
