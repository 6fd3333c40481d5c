"""Distribution in bounded memory: logarithmic buckets, quantiles to 1 % of their value."""

import math
from dataclasses import dataclass

_GROWTH = 1.02
"""Ratio of a bucket's edges; a value is within sqrt(1.02), 1 %, of its bucket's middle."""
_LOG_GROWTH = math.log(_GROWTH)
_SMALLEST_SECONDS = 1e-6
"""Below the resolution of the measurements; keeps the buckets up to an hour below 1,200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Seconds. `count`, `mean` and `max` are exact, the quantiles to 1 %."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class Distribution:
    """Counts seconds; keeps no sample."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._count = 0
        self._sum = 0.0
        self._min = math.inf
        self._max = 0.0

    def observe(self, seconds: float) -> None:
        bucket = math.floor(math.log(max(seconds, _SMALLEST_SECONDS)) / _LOG_GROWTH)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self._count += 1
        self._sum += seconds
        self._min = min(self._min, seconds)
        self._max = max(self._max, seconds)

    def summary(self) -> Summary | None:
        """None if nothing was observed."""
        if not self._count:
            return None
        return Summary(
            count=self._count,
            mean=self._sum / self._count,
            p50=self._quantile(0.5),
            p90=self._quantile(0.9),
            p99=self._quantile(0.99),
            max=self._max,
        )

    def _quantile(self, q: float) -> float:
        """Nearest rank: the smallest value with at least a share q at or below it."""
        rank = math.ceil(q * self._count)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                middle = math.exp((bucket + 0.5) * _LOG_GROWTH)
                return min(max(middle, self._min), self._max)
        raise AssertionError("ranks end at the count")
