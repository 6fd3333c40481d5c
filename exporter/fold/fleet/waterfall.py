"""The causes of a fleet's misses: own <= best <= anywhere <= seen <= asked.

Each step is a number of leading blocks of a lookup, and the gap between two steps has a culprit:
routing between own and best, fetching from peers between best and anywhere, capacity between
anywhere and seen, and new content above. Each lookup is judged by itself: had *this* one gone to
the replica that held most of it. What another router would find in the long run depends on what its
own choices leave behind; that is for a replay (`kvscope whatif --replicas`).
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from exporter.fold.fleet.asked import HORIZON, Asked
from exporter.fold.fleet.holders import Holders


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

    def __init__(self, horizon: int = HORIZON, sizes: Sequence[int] | None = None) -> None:
        """horizon, sizes: see `Asked`."""
        self.holders = Holders()
        self.asked = Asked(horizon, sizes)
        self._own = self._best = self._anywhere = self._seen = self._asked = 0

    @property
    def totals(self) -> Steps:
        """Sums over all lookups so far."""
        return Steps(self._own, self._best, self._anywhere, self._seen, self._asked)

    def look_up(self, names: Sequence[Hashable], own: int) -> Steps:
        """Count the first lookup of a request, before what it caches is stored; returns its own
        steps.

        own: leading names that its replica found. The names are not changed afterwards.
        """
        best, anywhere = self.holders.prefixes(names)
        # The replica knows best what it found; of one whose state was lost we know less.
        best = max(own, best)
        anywhere = max(best, anywhere)
        seen = max(anywhere, self.asked.look_up(names, own))
        self._own += own
        self._best += best
        self._anywhere += anywhere
        self._seen += seen
        self._asked += len(names)
        return Steps(own, best, anywhere, seen, len(names))
