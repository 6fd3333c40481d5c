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
    (-0.5, 0.4, 1.8, 2.0, 0.5),
    (0.3, 0.2, 1.5, 1.1, 0.3),
    (0.4, 0.4, 1.1, 0.7, 0.3),
)
"""Weights at each horizon before outcomes are known, of the parts of `_known`: what a steady and a
wandering load taught in three hours (benchmarks.forecast, seed 1)."""
_PRECISION = 8.0
"""Number of judged forecasts that outweighs them."""
_DRIFT = 2e-4
"""Share of the initial variances that returns with each judged forecast: traffic changes."""
_LEAST_CURVE = 0.02
"""Bound for a nearly certain forecast, so that one surprise does not overturn everything."""
_LEAST_ROOM = 0.01


class Pool(NamedTuple):
    """The pool and its engine at a moment."""

    active_ratio: float
    growth: float
    """Change of that ratio a second."""
    is_waiting: bool
    """Whether requests wait."""


class Probability:
    """Forecasts at every horizon, and what came of the earlier ones."""

    def __init__(self) -> None:
        self._regressions = [
            _Regression(horizon, weights)
            for horizon, weights in zip(HORIZONS, _WEIGHTS, strict=True)
        ]
        self._exhausted_at = -math.inf
        self._due = -math.inf
        self._known_from = math.inf

    def exhausted(self, now: float) -> None:
        """The pool could not serve a running sequence."""
        if now > self._exhausted_at:
            self._exhausted_at = now
            for regression in self._regressions:
                regression.happened(now)

    def forget(self) -> None:
        """Batches were lost: whether the pool was exhausted is unknown."""
        self._exhausted_at = -math.inf
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
        for regression in self._regressions:
            regression.judge(now)
            if is_punctual:
                known = _known(pool, now - self._exhausted_at, regression.horizon)
                regression.open.append(_Forecast(now, known))

    def at(self, now: float, pool: Pool) -> dict[int, float]:
        """Probabilities by horizon, never smaller for a longer one; empty: too little was seen."""
        if now < self._known_from:
            return {}
        said = (
            regression.probability(_known(pool, now - self._exhausted_at, regression.horizon))
            for regression in self._regressions
        )
        return dict(zip(HORIZONS, accumulate(said, max), strict=True))


def _known(pool: Pool, seconds_since: float, horizon: int) -> tuple[float, ...]:
    """A constant, how recently the pool was exhausted, how little of it is free now and at the end
    of the horizon if the trend continues (by the logarithm), and whether requests wait."""
    room = 1 - pool.active_ratio
    return (
        1.0,
        math.exp(-seconds_since / horizon),
        _scarcity(room),
        float(pool.is_waiting),
        _scarcity(room - pool.growth * horizon),
    )


def _scarcity(room: float) -> float:
    """0 when 5 % are free, 1.6 when 1 % or less are, -3 when all are."""
    return -math.log(min(1.0, max(_LEAST_ROOM, room))) - 3


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
