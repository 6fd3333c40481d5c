"""Hits at every size of the cache, from the depths at which the looked-up blocks lay.

A block with R referenced blocks and L blocks of the stack above it is resident in a pool of C blocks
if and only if R + L + 1 <= C: its distance is the smallest pool that would still hold it. So a count
of distances gives the hits at all sizes at once.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from exporter.fold.cache.run_stack import Segment


class HitCurve:
    """Exact at every size up to the horizon of the stack; grows with the distinct distances."""

    def __init__(self) -> None:
        self.queried_blocks = 0
        self._held = 0  # found whatever the size
        self._steps: dict[int, int] = {}  # changes of the number of blocks at a distance

    def look_up(
        self, queried: int, held: int, referenced: int, segments: Iterable[Segment]
    ) -> None:
        """Count one lookup.

        queried: blocks of the path. held: its leading blocks that are referenced. referenced: all
        blocks of the pool that are, before the lookup changes it. segments: what the stack had next.
        """
        self.queried_blocks += queried
        self._held += held
        steps = self._steps
        for above, count in segments:
            first = referenced + above + 1
            steps[first] = steps.get(first, 0) + 1
            steps[first + count] = steps.get(first + count, 0) - 1

    def hits_at(self, capacities: Sequence[int]) -> list[int]:
        """Hits so far, had the pool had so many blocks, in the order of `capacities`."""
        bounds = sorted(self._steps)
        # Up to C lie sum(step * (C + 1 - bound)) blocks, over all bounds <= C.
        steps = [self._steps[bound] for bound in bounds]
        level = [0, *accumulate(steps)]
        weighted = [0, *accumulate(map(int.__mul__, steps, bounds))]
        hits = []
        for capacity in capacities:
            index = bisect_right(bounds, capacity)
            hits.append(self._held + level[index] * (capacity + 1) - weighted[index])
        return hits
