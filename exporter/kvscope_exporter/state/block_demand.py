"""Blocks that a sequence may come to hold, from its tokens and the groups of its pool."""

from collections.abc import Collection

from kvscope_events.events import CacheGroup


class Footprint:
    """The groups of one pool. All groups share its blocks."""

    def __init__(self, groups: Collection[CacheGroup]) -> None:
        self._groups = tuple(groups)

    def blocks(self, tokens: int) -> int:
        """Blocks that a sequence of this many tokens holds at once."""
        return sum(_blocks(tokens, group) for group in self._groups)

    def demand(self, prompt_tokens: int, max_tokens: int) -> "BlockDemand":
        """The demand of a new sequence."""
        # The KV of the last token is never written: nothing follows it.
        return BlockDemand(prompt_tokens, self.blocks(prompt_tokens + max_tokens - 1))


def _blocks(tokens: int, group: CacheGroup) -> int:
    blocks = -(-tokens // group.block_size)
    most = _most_blocks(group)
    return blocks if most is None else min(blocks, most)


def _most_blocks(group: CacheGroup) -> int | None:
    """Blocks that a sequence of any length holds at most; None: they grow with it."""
    if group.kind == "state":
        return 2  # the latest state, and while it is copied into a new block the one before
    if group.window is None:
        return None
    return -(-group.window // group.block_size) + 1  # a window may begin in a block


class BlockDemand:
    """Blocks and tokens of a sequence that was added and has not ended."""

    __slots__ = ("held", "most", "produced", "prompt_tokens", "since")

    def __init__(self, prompt_tokens: int, most: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.most = most
        """Blocks that it holds at max_tokens."""
        self.held = 0
        """Blocks in its table."""
        self.produced = 0.0
        """Output tokens when it last stopped running."""
        self.since: float | None = None
        """The clock when it had produced nothing; None: it produces nothing now."""
