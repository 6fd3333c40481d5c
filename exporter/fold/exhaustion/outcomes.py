"""Forecasts whose outcome is known, and the correction that follows from them.

A forecast is judged when its horizon has passed, never before: those that came true are known
early, and would be the only ones counted.
"""

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from exporter.fold.exhaustion.correction import Correction, State

_REACH = 6.0
_CELLS = 24
"""Cells of a forecast's log odds, from -6 to 6."""
_HALF_LIFE_SECONDS = 24 * 3600.0
_LINE = 3.0
"""Weight of the correction in each cell, in judged forecasts."""
_FIT_SECONDS = 30.0
CALM = State()


def log_odds(probability: float) -> float:
    clipped = min(1 - 1e-6, max(1e-6, probability))
    return max(-_REACH, min(_REACH, math.log(clipped / (1 - clipped))))


def _probability(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))


class Outcomes:
    """Outcomes at one horizon. Bounded: the forecasts of a horizon's length, and 24 cells."""

    def __init__(self, horizon: float, interval: float, weights: Sequence[float]) -> None:
        self._correction = Correction(weights)
        self._horizon = horizon
        # Forecasts that overlap see the same future: a horizon of them counts as two.
        self._weight = min(1.0, 2 * interval / horizon)
        self._open: deque[tuple[float, float, State, float]] = deque(
            maxlen=math.ceil(horizon / interval) + 1
        )
        # Covers the oldest open forecast's horizon, though it may be judged an interval late.
        self._seen: deque[float] = deque(maxlen=math.ceil(horizon + 2 * interval))
        self._growth = 1.0
        self._aged_at: float | None = None
        self._counts = [0.0] * _CELLS
        self._hits = [0.0] * _CELLS
        self._odds = [0.0] * _CELLS  # sums
        self._fitted_at: float | None = None
        self._points: list[tuple[float, float]] = []

    def happened(self, now: float) -> None:
        """The pool is exhausted now; at most one exhaustion a second is remembered."""
        if not self._seen or now - self._seen[-1] >= 1.0:
            self._seen.append(now)

    def forget(self) -> None:
        """Batches were lost: open forecasts stay without an outcome."""
        self._open.clear()
        self._seen.clear()

    def forecast(self, now: float, probability: float, state: State = CALM) -> None:
        """Remember the model's present forecast, to judge it later."""
        odds = log_odds(probability)
        self._open.append((now, odds, state, self._corrected(odds, state)))

    def judge(self, now: float) -> None:
        """Learn from the forecasts whose horizon has passed."""
        while self._open and self._open[0][0] + self._horizon <= now:
            at, odds, state, said = self._open.popleft()
            while self._seen and self._seen[0] <= at:
                self._seen.popleft()
            hit = bool(self._seen) and self._seen[0] <= at + self._horizon
            self._correction.learn(odds, state, hit, self._weight)
            self._learn(at, said, hit)
        if self._fitted_at is None or now - self._fitted_at >= _FIT_SECONDS:
            self._fitted_at = now
            self._fit()

    def calibrated(self, probability: float, state: State = CALM) -> float:
        """The frequency of exhaustion when the model gave this probability in such a state."""
        odds = self._corrected(log_odds(probability), state)
        if not self._points:
            return _probability(odds)
        points = self._points
        if odds <= points[0][0]:
            return points[0][1]
        for (left, low), (right, high) in pairwise(points):
            if odds <= right:
                return low + (high - low) * (odds - left) / (right - left)
        return points[-1][1]

    def _corrected(self, odds: float, state: State) -> float:
        return max(-_REACH, min(_REACH, self._correction.odds(odds, state)))

    def _learn(self, at: float, odds: float, hit: bool) -> None:
        if self._aged_at is not None:
            self._growth *= 2 ** ((at - self._aged_at) / _HALF_LIFE_SECONDS)
        self._aged_at = at
        if self._growth > 1e9:
            for values in (self._counts, self._hits, self._odds):
                values[:] = [value / self._growth for value in values]
            self._growth = 1.0
        weight = self._weight * self._growth
        cell = min(_CELLS - 1, int((odds + _REACH) / (2 * _REACH) * _CELLS))
        self._counts[cell] += weight
        self._odds[cell] += weight * odds
        if hit:
            self._hits[cell] += weight

    def _fit(self) -> None:
        levels = []
        for index in range(_CELLS):
            count, hits = self._counts[index] / self._growth, self._hits[index] / self._growth
            middle = (index + 0.5) / _CELLS * 2 * _REACH - _REACH
            odds = self._odds[index] / self._counts[index] if self._counts[index] else middle
            share = (hits + _LINE * _probability(odds)) / (count + _LINE)
            levels.append((odds, count + _LINE, share))
        self._points = _rising(levels)


def _rising(levels: list[tuple[float, float, float]]) -> list[tuple[float, float]]:
    """Merge neighbours that decrease, so that a higher forecast never gets a lower probability."""
    pools: list[list[tuple[float, float, float]]] = []
    for level in levels:
        pools.append([level])
        while len(pools) > 1 and _mean(pools[-2]) >= _mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    return [(odds, _mean(pool)) for pool in pools for odds, _, _ in pool]


def _mean(pool: list[tuple[float, float, float]]) -> float:
    return sum(weight * value for _, weight, value in pool) / sum(weight for _, weight, _ in pool)
