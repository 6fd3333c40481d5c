"""Number of blocks that a sequence of a given length holds, over all groups of a pool."""

from collections.abc import Sequence

from kvscope_events.events import CacheGroup


class Footprint:
    """The groups of one pool. All groups share its blocks."""

    def __init__(self, groups: Sequence[CacheGroup]) -> None:
        self._groups = tuple(groups)
        unbounded = [group for group in groups if group.window is None] or list(groups)
        self.blocks_per_token = sum(1 / group.block_size for group in unbounded)
        """By which a long sequence grows: a window that is full grows no more."""

    def blocks(self, tokens: int) -> int:
        """Blocks that a sequence of this many tokens holds at once."""
        return sum(_blocks(tokens, group) for group in self._groups)


def _blocks(tokens: int, group: CacheGroup) -> int:
    blocks = -(-tokens // group.block_size)
    if group.window is None:
        return blocks
    return min(blocks, -(-group.window // group.block_size) + 1)  # a window may begin in a block
