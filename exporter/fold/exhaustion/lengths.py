"""Output lengths of sequences, as the hazard of an end at each token.

A sequence that is cut off (at max_tokens, by its client) or still runs is one that has lived at
least that long: it counts as exposure, not as an end. So truncated answers do not pass for short
ones, nor does a mean hide that those still running are the long ones.
"""

import math
from collections.abc import Collection, Iterable

PER_OCTAVE = 4
_OCTAVES = 20
_BINS = PER_OCTAVE * _OCTAVES + 1
EDGES = tuple(2 ** (index / PER_OCTAVE) - 1 for index in range(_BINS + 1))
"""Tokens at which bins begin: narrow where sequences are short, a fifth of the length elsewhere."""
MEMORY = 2000.0
"""Endings after which the weight of one is 1/e: enough for a tail."""
RECENT = 60.0
"""The same for the recent ones, which take over when they differ."""
_EVIDENCE = 5.0
"""Margin, in nats, by which the recent model must have predicted the latest endings better."""
_EVIDENCE_MEMORY = 50.0
_PRIOR_ENDS = 0.5
"""Weight of a bin without ends: as for a tail whose ends get rarer in proportion to its length."""


def bin_of(tokens: float) -> int:
    return min(_BINS - 1, int(PER_OCTAVE * math.log2(tokens + 1.0) + 1e-9))


class _Counts:
    """Endings by length; the latest weigh most."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._weight = 1.0  # of the next ending: growing it is cheaper than shrinking all others
        self._stops = [0.0] * _BINS
        self._ends = [0.0] * _BINS
        self._partial = [0.0] * _BINS  # tokens that those endings spent in their last bin

    def observe(self, tokens: int, *, stopped: bool) -> None:
        index = bin_of(tokens)
        weight = self._weight
        self._ends[index] += weight
        self._partial[index] += weight * (tokens - EDGES[index])
        if stopped:
            self._stops[index] += weight
        self._weight = weight * (1 + 1 / self._memory)
        if self._weight > 1e9:
            for values in (self._stops, self._ends, self._partial):
                values[:] = [value / self._weight for value in values]
            self._weight = 1.0

    def become(self, other: "_Counts") -> None:
        """Take over another instance's counts."""
        self._weight = other._weight
        self._stops = other._stops.copy()
        self._ends = other._ends.copy()
        self._partial = other._partial.copy()

    def survival(self, running: Iterable[float]) -> "Survival":
        weight = self._weight
        ends = [value / weight for value in self._ends]
        partial = [value / weight for value in self._partial]
        for tokens in running:
            index = bin_of(tokens)
            ends[index] += 1.0
            partial[index] += tokens - EDGES[index]
        exposures = [0.0] * _BINS
        passed = 0.0
        for index in reversed(range(_BINS)):
            exposures[index] = partial[index] + passed * (EDGES[index + 1] - EDGES[index])
            passed += ends[index]
        stops = [value / weight for value in self._stops]
        return Survival(_hazards(stops, exposures))


class Lengths:
    """Many endings while traffic stays the same, few after it has changed."""

    def __init__(self) -> None:
        self._all, self._recent = _Counts(MEMORY), _Counts(RECENT)
        self._expected: tuple[Survival, Survival] | None = None  # by all, by the recent ones
        self._evidence = 0.0
        self.num_ended = 0

    def observe(self, tokens: int, *, stopped: bool) -> bool:
        """A sequence ended after this many tokens: by itself, or cut off.

        Returns whether traffic appears to have changed.
        """
        self.num_ended += 1
        if self._expected is not None:
            by_all, by_recent = self._expected
            gain = by_recent.likelihood(tokens, stopped) - by_all.likelihood(tokens, stopped)
            self._evidence += max(-5.0, min(5.0, gain)) - self._evidence / _EVIDENCE_MEMORY
        self._all.observe(tokens, stopped=stopped)
        self._recent.observe(tokens, stopped=stopped)
        if self._evidence < _EVIDENCE:
            return False
        self._all.become(self._recent)
        self._evidence = 0.0
        return True

    def survival(self, running: Collection[float]) -> "Survival":
        """The current hazard; running: the tokens that each running sequence has produced."""
        return self._all.survival(running)

    def expect(self, running: Collection[float]) -> None:
        """Keep what the next endings are judged by."""
        self._expected = self._all.survival(running), self._recent.survival(())


def _hazards(stops: list[float], exposures: list[float]) -> list[float]:
    """Ends per token in each bin; where there is little data, the bin before is continued."""
    exposed = sum(exposures)
    expected = sum(stops) / exposed if exposed else 0.0
    if not expected:
        return [0.0] * _BINS
    hazards = []
    for stopped, exposure in zip(stops, exposures, strict=True):
        hazard = (stopped + _PRIOR_ENDS) / (exposure + _PRIOR_ENDS / expected)
        hazards.append(hazard)
        expected = hazard * 2 ** (-1 / PER_OCTAVE)
    return hazards


class Survival:
    """Cumulative hazard over tokens: the share that survives from a to b is exp(H(a) - H(b))."""

    def __init__(self, hazards: list[float]) -> None:
        self._hazards = hazards
        self._sums = [0.0]
        for index, hazard in enumerate(hazards):
            self._sums.append(self._sums[-1] + hazard * (EDGES[index + 1] - EDGES[index]))

    def hazard(self, tokens: float) -> float:
        """Cumulative, up to this many tokens."""
        index = bin_of(tokens)
        return self._sums[index] + self._hazards[index] * (tokens - EDGES[index])

    def likelihood(self, tokens: float, stopped: bool) -> float:
        """Log probability of living that long and, if it stopped, of stopping there."""
        hazard = self._hazards[bin_of(tokens)]
        if not stopped:
            return -self.hazard(tokens)
        return math.log(max(hazard, 1e-9)) - self.hazard(tokens)

    def mean(self, limits: Iterable[tuple[float, float]]) -> float:
        """Expected tokens of a sequence from its first, given (max_tokens, share of sequences)."""
        limits = tuple(limits)
        total = 0.0
        for index, hazard in enumerate(self._hazards):
            begins, ends = EDGES[index], EDGES[index + 1]
            allowed = sum(share * max(0.0, min(limit, ends) - begins) for limit, share in limits)
            if not allowed:
                break
            fall = hazard * (ends - begins)
            alive = math.exp(-self._sums[index]) * (-math.expm1(-fall) / fall if fall else 1.0)
            total += alive * allowed
        return total
