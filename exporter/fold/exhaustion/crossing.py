"""The probability that demand exceeds the pool at some moment before each point of the grid.

Demand is taken to be Gaussian and Markov: its distribution, in deviations from the mean, is carried
from point to point, and the part above the pool's size is removed.
"""

import math
from functools import lru_cache
from operator import mul

from exporter.fold.exhaustion.demand import Demand, spans

_REACH = 4.0
_CELLS = 32
_WIDTH = 2 * _REACH / _CELLS
_EDGES = [-_REACH + _WIDTH * index for index in range(_CELLS + 1)]
_CENTRES = [edge + _WIDTH / 2 for edge in _EDGES[:-1]]
_CLOSE = 0.96
"""Moments that are correlated more closely than this are treated as one: cells are no narrower."""
_SPANS = spans()


def crossings(demand: Demand, usable: float, per_second: float) -> list[float]:
    """Probabilities at each point of the grid; they rise.

    per_second: how often growth hits the limit of a pool whose demand exceeds it. Sequences are
    admitted only if their prompts fit, so a full pool has a little room left, and growth needs a
    while to fill it.
    """
    shares = _normal()
    result = []
    crossed = 0.0
    correlation = 1.0
    for mean, deviation, skew, step_correlation, span in zip(
        *(demand.means, demand.deviations, demand.skews, demand.correlations, _SPANS), strict=True
    ):
        if deviation > 0:
            level = _straight((usable - mean) / deviation, skew)
        else:
            level = math.copysign(math.inf, usable - mean)
        correlation *= step_correlation
        if correlation < _CLOSE:
            if crossed:  # otherwise it is unchanged
                shares = [sum(map(mul, row, shares)) for row in _kernel(round(correlation * 50))]
            correlation = 1.0
        if level < _REACH:
            taken = 1 - math.exp(-per_second * span)
            first = max(0, int((level + _REACH) / _WIDTH)) if level > -_REACH else 0
            for index in range(first, _CELLS):
                above = min(1.0, (_EDGES[index + 1] - level) / _WIDTH)
                out = shares[index] * above * taken
                shares[index] -= out
                crossed += out
        result.append(min(1.0, crossed))
    return result


def _straight(level: float, skew: float) -> float:
    """The level that a Gaussian exceeds as often as a distribution of this skew exceeds `level`.

    For a gamma distribution, whose cube root is almost Gaussian (Wilson and Hilferty, 1931).
    """
    if abs(skew) < 0.01:
        return level
    shape = 4 / (skew * skew)
    scaled = 1 + level * skew / 2
    if scaled <= 0:
        return math.copysign(math.inf, -skew)
    ninth = 1 / (9 * shape)
    return math.copysign(1.0, skew) * (math.cbrt(scaled) - 1 + ninth) / math.sqrt(ninth)


def _cumulative(value: float) -> float:
    return 0.5 * math.erfc(-value / math.sqrt(2))


def _normal() -> list[float]:
    ends = [_cumulative(edge) for edge in _EDGES]
    ends[0], ends[-1] = 0.0, 1.0
    return [ends[index + 1] - ends[index] for index in range(_CELLS)]


@lru_cache(maxsize=64)
def _kernel(fiftieths: int) -> list[list[float]]:
    """Rows by the cell reached, columns by the cell left, at one correlation."""
    correlation = fiftieths / 50
    spread = math.sqrt(max(1e-9, 1 - correlation * correlation))
    columns = []
    for centre in _CENTRES:
        ends = [_cumulative((edge - correlation * centre) / spread) for edge in _EDGES]
        ends[0], ends[-1] = 0.0, 1.0
        columns.append([ends[index + 1] - ends[index] for index in range(_CELLS)])
    return [list(row) for row in zip(*columns, strict=True)]
