"""Block ids of the host's swap pool: allocated and released; every id is used or free.

Ids come in ascending runs if possible, so that their contents are adjacent.
"""


class OutOfHostBlocksError(Exception):
    """More blocks were requested than are free; the pool is unchanged."""

    def __init__(self, wanted: int, free: int) -> None:
        super().__init__(f"{wanted} blocks of the swap pool wanted, {free} free")
        self.wanted = wanted
        self.free = free


class HostPool:
    """Blocks 0..num_blocks-1; O(1) for every block."""

    def __init__(self, num_blocks: int) -> None:
        """Raises ValueError for a pool without a block."""
        if num_blocks <= 0:
            raise ValueError(f"num_blocks must be positive, got {num_blocks}")
        self.num_blocks = num_blocks
        self._is_used = bytearray(num_blocks)
        self._given_back: list[int] = []  # a stack
        self._untouched = 0  # from here on no block has ever been handed out

    @property
    def num_free(self) -> int:
        return len(self._given_back) + self.num_blocks - self._untouched

    @property
    def num_used(self) -> int:
        return self._untouched - len(self._given_back)

    def can_allocate(self, count: int) -> bool:
        """Whether that many blocks are free."""
        return count <= self.num_free

    def allocate(self, count: int) -> list[int]:
        """Take blocks, those released last first. Raises OutOfHostBlocksError."""
        if not self.can_allocate(count):
            raise OutOfHostBlocksError(count, self.num_free)
        again = min(count, len(self._given_back))
        blocks = self._given_back[len(self._given_back) - again :][::-1]
        del self._given_back[len(self._given_back) - again :]
        end = self._untouched + count - again
        blocks += range(self._untouched, end)
        self._untouched = end
        for block in blocks:
            self._is_used[block] = 1
        return blocks

    def release(self, blocks: list[int]) -> None:
        """Release blocks; they are handed out again in this order."""
        for block in blocks:
            assert self._is_used[block], f"double free: host block {block} is not used"
            self._is_used[block] = 0
        self._given_back += reversed(blocks)

    def check(self) -> None:
        """Assert every invariant; O(num_blocks). For tests, never in a step."""
        free = set(self._given_back)
        assert len(free) == len(self._given_back), "a host block is free twice"
        assert all(0 <= block < self._untouched for block in free)
        used = {block for block, is_used in enumerate(self._is_used) if is_used}
        assert used.isdisjoint(free), "a host block is both used and free"
        assert len(used) == self.num_used, "host blocks neither used nor free: a leak"
