"""The paths that a fleet was asked for, and the hits of a tier of any size behind all its pools.

Such a tier holds copies, and every lookup touches its whole path there. So a tier of S blocks holds
the S names that were asked for last, and one stack has the answer for all sizes at once.
"""

from collections.abc import Hashable, Sequence

from kvscope_exporter.state.cache.curve import Grid
from kvscope_exporter.state.cache.run_stack import Segment
from kvscope_exporter.state.fleet.path_stack import PathStack

HORIZON = 1 << 22
"""Names that are remembered, at least: 67 million tokens in blocks of 16."""
SMALLEST = 1 << 8
PER_DOUBLING = 2
"""Sizes of a tier between one power of two and the next."""


def tier_sizes(horizon: int) -> list[int]:
    """Sizes in blocks, ascending: each the same multiple of the one before it."""
    doublings = max(0, (horizon // SMALLEST).bit_length() - 1)
    return [
        round(SMALLEST * 2 ** (step / PER_DOUBLING)) for step in range(doublings * PER_DOUBLING + 1)
    ]


class LookupPaths:
    """Paths of lookups, the last ones first."""

    def __init__(
        self, horizon: int = HORIZON, sizes: Sequence[int] | None = None, one_of: int = 1
    ) -> None:
        """sizes: of tiers, in blocks, ascending; None: `tier_sizes`.

        one_of: where only one of that many conversations is looked up, a tier is as much larger
        than what it holds of these, and finds as much more.
        """
        self._one_of = one_of
        horizon //= one_of
        sizes = tier_sizes(horizon) if sizes is None else [size // one_of for size in sizes]
        self._stack = PathStack(horizon)
        self._grid = Grid(1, horizon, sizes)

    @property
    def sizes(self) -> Sequence[int]:
        """Blocks of the tiers, ascending."""
        return [blocks * self._one_of for blocks in self._grid.capacities]

    @property
    def hit_blocks(self) -> Sequence[int]:
        """By size: leading blocks that the pool itself had found, or such a tier behind it."""
        return [hits * self._one_of for hits in self._grid.hit_blocks]

    def hits_by_size(self) -> list[tuple[int, int]]:
        """Blocks of a tier, and the hits with it."""
        return list(zip(self.sizes, self.hit_blocks, strict=True))

    @property
    def names(self) -> int:
        """Names that are remembered."""
        return len(self._stack)

    def look_up(self, names: Sequence[Hashable], own: int) -> int:
        """Returns how many leading names had been asked for before.

        own: leading names that the pool found. Each name stands for those before it as well; they
        are kept, and must not change.
        """
        segments = self._stack.touch(names)
        seen = sum([blocks for _, blocks in segments])
        self._grid.count(len(names), own, seen, _behind(segments, own))
        return seen

    def remember(self, names: Sequence[Hashable]) -> None:
        """They had been asked for; counts nothing."""
        self._stack.touch(names)


def _behind(segments: Sequence[Segment], own: int) -> list[Segment]:
    """The smallest tier that holds them, of consecutive names behind the first `own` ones."""
    found = []
    for above, blocks in segments:
        skipped = min(own, blocks)
        own -= skipped
        if skipped < blocks:
            found.append((above + skipped + 1, blocks - skipped))
    return found
