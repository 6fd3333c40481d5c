"""The causes of a fleet's misses: own <= best <= anywhere <= seen <= asked.

Each step is a number of leading blocks of a lookup, and the gap between two steps has a culprit:
routing between own and best, fetching from peers between best and anywhere, capacity between
anywhere and seen, and new content above. Each lookup is judged by itself: had *this* one gone to
the replica that held most of it. What another router would find in the long run depends on what its
own choices leave behind; that is for a replay (`kvscope whatif --replicas`).
"""

from collections.abc import Hashable, Sequence
from math import sqrt
from typing import NamedTuple

from kvscope_exporter.state.fleet.asked import HORIZON, LookupPaths
from kvscope_exporter.state.fleet.holders import Holders
from kvscope_exporter.state.fleet.sample import GROUPS, Sample


class Steps(NamedTuple):
    """Sums in blocks."""

    own: int = 0
    """Found by the replica that got the request."""
    best: int = 0
    """One replica held all of them at that moment."""
    anywhere: int = 0
    """Each was on some replica."""
    seen: int = 0
    """Some request had asked for them before."""
    asked: int = 0


class Waterfall:
    """Replicas whose names can be compared."""

    def __init__(
        self, horizon: int = HORIZON, sizes: Sequence[int] | None = None, one_of: int = 1
    ) -> None:
        """horizon, sizes: see `LookupPaths`. one_of: above 1, one of that many conversations is
        folded, and counts as often in the sums, which are estimates then.
        """
        self.holders = Holders()
        self.asked = LookupPaths(horizon, sizes, one_of)
        self.one_of = one_of
        self.sample = Sample(one_of) if one_of > 1 else None
        self._groups = [[0] * len(Steps._fields) for _ in range(GROUPS if one_of > 1 else 1)]
        """Sums over the lookups of each group of the sample; without one, over all."""

    @property
    def totals(self) -> Steps:
        """Sums over all lookups so far."""
        return Steps(*(self.one_of * sum(step) for step in zip(*self._groups, strict=True)))

    def standard_error(self) -> float | None:
        """The largest standard error of a step's share of the blocks asked for, in 0 to 1, by how
        the groups of the sample differ; None: too little was asked for to say.
        """
        if self.sample is None:
            return 0.0
        groups = [Steps(*group) for group in self._groups]
        every = Steps(*map(sum, zip(*groups, strict=True)))
        if any(every.asked == group.asked or not group.asked for group in groups):
            return None
        largest = 0.0
        for step in range(len(Steps._fields) - 1):
            # Each without one group, since a share of sums is not the mean of shares.
            shares = [(every[step] - group[step]) / (every.asked - group.asked) for group in groups]
            mean = sum(shares) / GROUPS
            spread = sum((share - mean) ** 2 for share in shares)
            largest = max(largest, sqrt(spread * (GROUPS - 1) / GROUPS))
        return largest * sqrt(1 - 1 / self.one_of)

    def look_up(self, names: Sequence[Hashable], own: int) -> Steps | None:
        """Count the first lookup of a request, before what it caches is stored; returns its own
        steps; None: it is not in the sample.

        own: leading names that its replica found. The names are not changed afterwards.
        """
        group = self._group(names)
        if group is None:
            return None
        best, anywhere = self.holders.prefixes(names)
        # The replica knows best what it found; of one whose state was lost we know less.
        best = max(own, best)
        anywhere = max(best, anywhere)
        seen = max(anywhere, self.asked.look_up(names, own))
        sums = self._groups[group]
        sums[0] += own
        sums[1] += best
        sums[2] += anywhere
        sums[3] += seen
        sums[4] += len(names)
        return Steps(own, best, anywhere, seen, len(names))

    def store(self, slot: int, names: Sequence[Hashable], parent: Hashable | None) -> None:
        """Blocks of a replica became findable: descendants of `parent`; see `Sample.stored`."""
        if self.sample is not None:
            names = self.sample.stored(names, parent)
        if names:
            self.holders.store(slot, names)

    def _group(self, names: Sequence[Hashable]) -> int | None:
        """None: it is not in the sample."""
        sample = self.sample
        if sample is None:
            return 0
        if sample.has_begun:
            return sample.look_up(names)
        for path in sample.learn(names):
            self.asked.remember(path)
        return None
