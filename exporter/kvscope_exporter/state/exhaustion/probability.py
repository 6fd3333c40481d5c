"""The probability that the pool is exhausted within each horizon: a regression that learns online.

Each forecast is kept until its horizon has passed, and is then learnt from, never earlier: those
that come true are known first, and would be the only ones to count.
"""

import math
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

HORIZONS = (10, 30, 60)
"""Seconds: too late to act, time to shed load, to route elsewhere."""
INTERVAL_SECONDS = 5.0
"""Seconds between two forecasts that are judged."""
MIN_SECONDS = 30.0
"""Seconds of work that must have been seen: a shorter trend says little."""
_WEIGHTS = (
    (-0.3, 2.4, 2.5, 0.3),
    (0.4, 1.8, 1.5, 0.2),
    (0.7, 1.4, 1.1, 0.1),
)
"""Weights at each horizon before outcomes are known, of the parts of `_known`: what a steady and a
wandering load taught in three hours (benchmarks.forecast, seed 1)."""
_PRECISION = 16.0
"""Number of judged forecasts that outweighs them."""
_DRIFT = 2e-4
"""Share of the initial variances that returns with each judged forecast: traffic changes."""
_LEAST_CURVE = 0.02
"""Bound for a nearly certain forecast, so that one surprise does not overturn everything."""
_LEAST_ROOM = 0.03
_SHARE_SECONDS = 600.0
"""Time after which what a sequence held weighs 1/e in the mean."""


class Pool(NamedTuple):
    """The pool and its engine at a moment, with something running."""

    active_ratio: float
    running: int
    """Sequences, as those below."""
    waiting: int


class Probability:
    """Forecasts at every horizon, and what came of the earlier ones."""

    def __init__(self) -> None:
        self._regressions = [
            _Regression(horizon, weights)
            for horizon, weights in zip(HORIZONS, _WEIGHTS, strict=True)
        ]
        self._share: float | None = None  # of the pool that a running sequence holds, on average
        self._due = -math.inf
        self._known_from = math.inf

    def exhausted(self, now: float) -> None:
        """The pool could not serve a running sequence."""
        for regression in self._regressions:
            regression.happened(now)

    def forget(self) -> None:
        """Batches were lost: whether the pool was exhausted is unknown."""
        for regression in self._regressions:
            regression.open.clear()

    def is_due(self, now: float) -> bool:
        """Whether it is time for the next forecast that is judged."""
        return now >= self._due

    def observe(self, now: float, pool: Pool) -> None:
        """Something runs: learn from earlier forecasts, and keep this one."""
        self._known_from = min(self._known_from, now + MIN_SECONDS)
        # One that was due while nothing ran is skipped: moments at which work arrives are not
        # typical, since exhaustion follows them more often.
        is_punctual = now - self._due < INTERVAL_SECONDS
        self._due = now + INTERVAL_SECONDS
        share = pool.active_ratio / pool.running
        before = share if self._share is None else self._share
        self._share = before + INTERVAL_SECONDS / _SHARE_SECONDS * (share - before)
        known = self._known(pool)
        for regression in self._regressions:
            regression.judge(now)
            if is_punctual:
                regression.open.append(_Forecast(now, known))

    def at(self, now: float, pool: Pool) -> dict[int, float]:
        """Probabilities by horizon, never smaller for a longer one; empty: too little was seen."""
        if now < self._known_from:
            return {}
        known = self._known(pool)
        said = (regression.probability(known) for regression in self._regressions)
        return dict(zip(HORIZONS, accumulate(said, max), strict=True))

    def _known(self, pool: Pool) -> tuple[float, ...]:
        """A constant; how little of the pool is free; whether sequences wait; and how little would
        be free if every sequence, waiting ones included, held what one holds on average."""
        wanted = (pool.running + pool.waiting) * (self._share or 0.0)
        return 1.0, _scarcity(pool.active_ratio), float(pool.waiting > 0), _scarcity(wanted)


def _scarcity(taken: float) -> float:
    """0 when 5 % are free, 0.5 when 3 % or less are, -3 when all are."""
    return -math.log(max(_LEAST_ROOM, 1 - taken)) - 3


class _Forecast:
    __slots__ = ("at", "came", "known")

    def __init__(self, at: float, known: tuple[float, ...]) -> None:
        self.at = at
        self.known = known
        self.came = False


class _Regression:
    """Logistic regression, one judged forecast at a time (a Kalman filter of its weights)."""

    def __init__(self, horizon: int, weights: Sequence[float]) -> None:
        self.horizon = horizon
        self.open: deque[_Forecast] = deque(maxlen=math.ceil(horizon / INTERVAL_SECONDS) + 1)
        self._weights = list(weights)
        # Forecasts that overlap see the same future: a horizon of them counts as two.
        self._weight = min(1.0, 2 * INTERVAL_SECONDS / horizon)
        size = len(self._weights)
        self._variances = [
            [1 / _PRECISION if row == column else 0.0 for column in range(size)]
            for row in range(size)
        ]

    def happened(self, now: float) -> None:
        for forecast in self.open:
            if now <= forecast.at + self.horizon:
                forecast.came = True

    def judge(self, now: float) -> None:
        while self.open and self.open[0].at + self.horizon <= now:
            forecast = self.open.popleft()
            self._learn(forecast.known, forecast.came)

    def probability(self, known: tuple[float, ...]) -> float:
        return 1 / (1 + math.exp(-sum(map(mul, self._weights, known))))

    def _learn(self, known: tuple[float, ...], came: bool) -> None:
        said = self.probability(known)
        curve = self._weight * max(_LEAST_CURVE, said * (1 - said))
        gains = [sum(map(mul, row, known)) for row in self._variances]
        scale = curve / (1 + curve * sum(map(mul, known, gains)))
        for row, gain in zip(self._variances, gains, strict=True):
            for column, other in enumerate(gains):
                row[column] -= scale * gain * other
        error = self._weight * (came - said)
        for index, row in enumerate(self._variances):
            self._weights[index] += error * sum(map(mul, row, known))
            row[index] += self._weight * _DRIFT / _PRECISION
