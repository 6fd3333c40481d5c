"""Share of idle moments that exhaustion followed: the forecast while nothing runs or waits.

An idle pool says nothing about the future, so all that is known is what followed earlier idle
moments. A few of them say little: a horizon's forecast is absent while two standard errors are more
than `MAX_ERROR`, and then two standard errors below the estimate, so that an idle engine hardly
ever reports more than its base rate by chance.
"""

import math
from collections import deque
from dataclasses import dataclass

from exporter.fold.exhaustion.horizons import HORIZONS

MAX_ERROR = 0.05
"""Five percentage points: a forecast that may be further off is worse than none."""
_STRETCHES = 512
"""Idle stretches whose outcome is open; a busy engine with short gaps has hundreds."""
_SURE = 2.0
"""Standard errors: for 39 of 40 engines the base rate is above the estimate minus this many."""
_MEMORY_SECONDS = 48 * 3600.0
"""Seconds of idleness that count: some nights, or weeks of short gaps."""


@dataclass(slots=True)
class _Stretch:
    begins: float
    ends: float
    exhausted: float = math.inf
    """The first exhaustion after it."""


class Idleness:
    """Counts seconds of idleness, and those within a horizon of exhaustion.

    A stretch is judged when the longest horizon has passed, never earlier: those that end in
    exhaustion are known first, and would be the only ones to count.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._open: deque[_Stretch] = deque(maxlen=_STRETCHES)
        self._seconds = 0.0
        self._hits = [0.0] * len(HORIZONS)

    def begins(self, now: float) -> None:
        """Nothing runs or waits from now on."""
        if self._since is None:
            self._since = now

    def ends(self, now: float) -> None:
        """Something has arrived."""
        if self._since is not None and now > self._since:
            self._open.append(_Stretch(self._since, now))
        self._since = None

    def happened(self, now: float) -> None:
        """The pool is exhausted now."""
        for stretch in reversed(self._open):
            if stretch.exhausted < math.inf:
                return  # so have all earlier ones
            stretch.exhausted = now

    def forget(self) -> None:
        """Arrivals, and whether the pool was exhausted, are unknown."""
        self._since = None
        self._open.clear()

    def judge(self, now: float) -> None:
        """Learn from the stretches whose outcome is known."""
        while self._open and self._open[0].ends + HORIZONS[-1] <= now:
            stretch = self._open.popleft()
            self._seconds += stretch.ends - stretch.begins
            for index, horizon in enumerate(HORIZONS):
                first = max(stretch.begins, stretch.exhausted - horizon)
                self._hits[index] += max(0.0, stretch.ends - first)
            kept = min(1.0, _MEMORY_SECONDS / self._seconds)
            self._seconds *= kept
            self._hits = [kept * seconds for seconds in self._hits]

    def probabilities(self, now: float) -> dict[int, float]:
        """Probabilities by horizon, if enough idle moments are known; they never fall."""
        known: dict[int, float] = {}
        if self._since is not None:
            for horizon, hits in zip(HORIZONS, self._hits, strict=True):
                probability = self._probability(now - self._since, horizon, hits)
                if probability is not None:
                    known[horizon] = max(probability, *known.values(), 0.0)
        return known

    def _probability(self, idle_seconds: float, horizon: int, hits: float) -> float | None:
        # This stretch counts too: nothing followed its moments of more than a horizon ago.
        seconds = self._seconds + max(0.0, idle_seconds - horizon)
        # Moments within one horizon share their outcome and count once. Half a hit and half a miss
        # are added (Jeffreys' prior): an event that never happened is not impossible.
        windows = seconds / horizon + 1
        share = (hits / horizon + 0.5) / windows
        variance = share * (1 - share)
        error = _SURE * math.sqrt(variance / (windows + 1))
        if error > MAX_ERROR:
            return None
        odds = math.log(share / (1 - share)) - error / variance
        return 1 / (1 + math.exp(-odds))
