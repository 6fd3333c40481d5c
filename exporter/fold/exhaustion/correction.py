"""Corrects the model's forecast for the present state of the pool; learnt from outcomes.

The model sees growth and arrivals, not the order in which a scheduler admits requests. So its log
odds are corrected by what it does not use: how long ago the pool was exhausted, how full it is, and
whether requests wait.
"""

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

_PRECISIONS = (2.0, 8.0, 2.0, 2.0, 2.0)
"""Weight of the prior, in judged forecasts: the model's own slope is trusted most."""
_DRIFT = 2e-4
"""Share of the initial variances that returns with each judged forecast: traffic changes."""
_LEAST_SLOPE = 0.05
_LEAST_CURVE = 0.02
"""Bound for a nearly certain forecast, so that one surprise does not overturn everything.
"""


class State(NamedTuple):
    """Facts that the model does not use."""

    recently: float = 0.0
    """1 at exhaustion, 1/e a horizon later."""
    fullness: float = 0.0
    """0 at nine tenths, 0.2 when full, -1 below four tenths."""
    waiting: float = 0.0
    """1 when requests wait."""


class Correction:
    """Logistic regression on the model's log odds and the state, one judged forecast at a time."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = list(weights)
        size = len(self._weights)
        self._variances = [
            [1 / _PRECISIONS[row] if row == column else 0.0 for column in range(size)]
            for row in range(size)
        ]

    def odds(self, odds: float, state: State) -> float:
        known = (1.0, odds, *state)
        return math.fsum(map(mul, self._weights, known))

    def learn(self, odds: float, state: State, hit: bool, weight: float) -> None:
        """A forecast has been judged; weight: below 1 if it shares its outcome with others."""
        known = (1.0, odds, *state)
        said = 1 / (1 + math.exp(-sum(map(mul, self._weights, known))))
        curve = weight * max(_LEAST_CURVE, said * (1 - said))
        gains = [sum(map(mul, row, known)) for row in self._variances]
        scale = curve / (1 + curve * sum(map(mul, known, gains)))
        for row, gain in zip(self._variances, gains, strict=True):
            for column, other in enumerate(gains):
                row[column] -= scale * gain * other
        error = weight * (hit - said)
        for index, row in enumerate(self._variances):
            self._weights[index] += error * sum(map(mul, row, known))
            row[index] += weight * _DRIFT / _PRECISIONS[index]
        self._weights[1] = max(_LEAST_SLOPE, self._weights[1])
