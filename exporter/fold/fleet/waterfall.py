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

from exporter.fold.fleet.asked import HORIZON, Asked
from exporter.fold.fleet.holders import Holders
from exporter.fold.fleet.sample import GROUPS, Sample


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
        """horizon, sizes: see `Asked`. one_of: above 1, one of that many conversations is folded,
        and counts as often; the sums are estimates then.
        """
        self.holders = Holders()
        self.asked = Asked(horizon, sizes, one_of)
        self.sample = Sample(one_of) if one_of > 1 else None
        self._weight = one_of
        self._own = self._best = self._anywhere = self._seen = self._asked = 0
        self._groups = [Steps()] * GROUPS

    @property
    def totals(self) -> Steps:
        """Sums over all lookups so far."""
        return Steps(self._own, self._best, self._anywhere, self._seen, self._asked)

    def standard_error(self) -> float | None:
        """The largest standard error of a step's share of the blocks asked for, in 0 to 1, as the
        groups of the sample differ; None: too little was asked for to say.
        """
        if self.sample is None:
            return 0.0
        if not all(group.asked for group in self._groups):
            return None
        largest = 0.0
        for step in range(len(Steps._fields) - 1):
            # Without one group each: shares of sums are no means of shares.
            without = [
                (self.totals[step] - group[step]) / (self._asked - group.asked)
                for group in self._groups
            ]
            mean = sum(without) / GROUPS
            spread = sum((share - mean) ** 2 for share in without)
            largest = max(largest, sqrt(spread * (GROUPS - 1) / GROUPS))
        return largest * sqrt(1 - 1 / self.sample.one_of)

    def look_up(self, names: Sequence[Hashable], own: int) -> Steps:
        """Count the first lookup of a request, before what it caches is stored; returns its own
        steps, which are 0 if it is not in the sample.

        own: leading names that its replica found. The names are not changed afterwards.
        """
        group, weight = 0, self._weight
        if self.sample is not None:
            chosen = self.sample.look_up(names)
            if chosen is None:
                return Steps()
            group = chosen
        best, anywhere = self.holders.prefixes(names)
        # The replica knows best what it found; of one whose state was lost we know less.
        best = max(own, best)
        anywhere = max(best, anywhere)
        seen = max(anywhere, self.asked.look_up(names, own))
        steps = Steps(
            own * weight, best * weight, anywhere * weight, seen * weight, len(names) * weight
        )
        self._own += steps.own
        self._best += steps.best
        self._anywhere += steps.anywhere
        self._seen += steps.seen
        self._asked += steps.asked
        if self.sample is not None:
            self._groups[group] = Steps(*map(int.__add__, self._groups[group], steps))
        return steps

    def store(self, slot: int, names: Sequence[Hashable], parent: Hashable | None) -> None:
        """Blocks of a replica became findable: descendants of `parent`; see `Sample.stored`."""
        if self.sample is not None:
            names = self.sample.stored(names, parent)
        self.holders.store(slot, names)
