"""Hazard of the next arrival, by the time since the last one.

A rate over minutes does not notice that a load has stopped: clients that wait for their answers
send nothing more once all have theirs. A silence longer than any before shows it at once.
"""

import math

_PER_OCTAVE = 2
_SHORTEST = 0.1
"""Seconds: about the length of a step, and arrivals within one step are simultaneous."""
_BINS = 40
_EDGES = (0.0, *(_SHORTEST * 2 ** (index / _PER_OCTAVE) for index in range(_BINS)))
_MEMORY = 2000.0
"""Gaps after which the weight of one is 1/e."""
_PRIOR_ENDS = 1.0
"""Weight of a bin before any gap has ended in it."""
_AGAIN = 0.25
"""A silence longer than any before lasts s seconds more with probability (1 + s / silence) **
-0.25: five in six last twice as long."""


def _bin(seconds: float) -> int:
    if seconds < _SHORTEST:
        return 0
    return min(_BINS, 1 + int(_PER_OCTAVE * math.log2(seconds / _SHORTEST) + 1e-9))


class Silence:
    """Gaps between arrivals, and the present one."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._weight = 1.0  # of the next gap: growing it is cheaper than shrinking all others
        self._ends = [0.0] * (_BINS + 1)
        self._partial = [0.0] * (_BINS + 1)  # seconds that those gaps spent in their last bin

    def came(self, now: float) -> None:
        """A sequence arrived."""
        if self._last is not None and now > self._last:
            gap = now - self._last
            index = _bin(gap)
            self._ends[index] += self._weight
            self._partial[index] += self._weight * (gap - _EDGES[index])
            self._weight *= 1 + 1 / _MEMORY
            if self._weight > 1e9:
                for values in (self._ends, self._partial):
                    values[:] = [value / self._weight for value in values]
                self._weight = 1.0
        self._last = now

    def restart(self) -> None:
        """Arrivals meanwhile are unknown."""
        self._last = None

    def seconds(self, now: float) -> float:
        """Seconds since the last arrival."""
        return 0.0 if self._last is None else max(0.0, now - self._last)

    def hazards(self, now: float) -> "Hazards":
        """Arrivals a second, by the time since the last one; the present silence counts as well."""
        ends = [value / self._weight for value in self._ends]
        partial = [value / self._weight for value in self._partial]
        silent = _bin(self.seconds(now))
        hazards = [0.0] * (_BINS + 1)
        passed = 0.0
        for index in reversed(range(_BINS + 1)):
            edge = _EDGES[index]
            width = _EDGES[index + 1] - edge if index < _BINS else edge
            if index == silent:
                passed_here = self.seconds(now) - edge
            else:
                passed_here = width if index < silent else 0.0
            exposure = partial[index] + passed * width + passed_here
            expected = _AGAIN / max(edge, _SHORTEST)
            hazards[index] = (ends[index] + _PRIOR_ENDS) / (exposure + _PRIOR_ENDS / expected)
            passed += ends[index]
        return Hazards(hazards)


class Hazards:
    """Probabilities of an arrival."""

    def __init__(self, hazards: list[float]) -> None:
        self._hazards = hazards
        self._sums = [0.0]
        for index in range(_BINS):
            width = _EDGES[index + 1] - _EDGES[index]
            self._sums.append(self._sums[-1] + hazards[index] * width)

    def now(self, silent_seconds: float) -> float:
        """Arrivals a second after such a silence."""
        return self._hazards[_bin(silent_seconds)]

    def within(self, silent_seconds: float, seconds: float) -> float:
        """The chance that something arrives within this many more seconds."""
        return -math.expm1(self._sum(silent_seconds) - self._sum(silent_seconds + seconds))

    def _sum(self, seconds: float) -> float:
        index = _bin(seconds)
        return self._sums[index] + self._hazards[index] * (seconds - _EDGES[index])
