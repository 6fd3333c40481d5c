"""How often exhaustion followed an idle moment: the forecast while nothing runs and nothing waits.

An idle pool says nothing of what comes, so what followed earlier idle moments is all that is known:
by how long the engine had been idle, since a pause of seconds ends sooner than a night. As in
`outcomes.py`, an idle moment is judged once its horizon has passed.
"""

from collections import deque
from dataclasses import dataclass

_EDGES = (0.0, 2.0, 10.0, 40.0, 160.0, 640.0, 2560.0, 10240.0)
"""Seconds of idleness at which bins begin; the last one has no end."""
_STRETCHES = 512
"""Idle stretches whose horizon has not passed; a busy engine with short gaps has hundreds."""
_MEMORY = 150.0
"""Windows that a bin remembers: weeks of nights, or half an hour of short gaps."""
_SHARED = 12.0
"""Windows that all idleness together is worth in one bin."""
_FIRST = 6.0
"""Windows that the first guess is worth."""


@dataclass(slots=True)
class _Stretch:
    begins: float
    ends: float
    exhausted: float | None = None
    """The first exhaustion after it."""


class Idleness:
    """One horizon. first: the probability before an idle stretch has ended."""

    def __init__(self, horizon: float, first: float) -> None:
        self._horizon = horizon
        self._first = first
        self._since: float | None = None
        self._pending: deque[_Stretch] = deque(maxlen=_STRETCHES)
        self._all_windows = self._all_hits = 0.0
        self._windows = [0.0] * len(_EDGES)
        self._hits = [0.0] * len(_EDGES)

    @property
    def is_known(self) -> bool:
        """Whether the engine idles, and since when."""
        return self._since is not None

    def begins(self, now: float) -> None:
        """Nothing runs and nothing waits from now on."""
        if self._since is None:
            self._since = now

    def ends(self, now: float) -> None:
        """Something has come."""
        if self._since is not None and now > self._since:
            self._pending.append(_Stretch(self._since, now))
        self._since = None

    def happened(self, now: float) -> None:
        """The pool is exhausted now."""
        for stretch in reversed(self._pending):
            if stretch.exhausted is not None:
                return  # so have all before it
            stretch.exhausted = now

    def forget(self) -> None:
        """What came, and whether the pool was exhausted, is not known."""
        self._since = None
        self._pending.clear()

    def judge(self, now: float) -> None:
        """Learn from the stretches whose horizon has passed."""
        while self._pending and self._pending[0].ends + self._horizon <= now:
            stretch = self._pending.popleft()
            hit = stretch.exhausted
            from_ = stretch.ends if hit is None else max(stretch.begins, hit - self._horizon)
            self._all_windows += (stretch.ends - stretch.begins) / self._horizon
            self._all_hits += (stretch.ends - from_) / self._horizon
            for index, seconds in _parts(stretch.begins, stretch.ends, stretch.begins):
                self._windows[index] += seconds / self._unit(index)
            for index, seconds in _parts(stretch.begins, stretch.ends, from_):
                self._hits[index] += seconds / self._unit(index)
            self._fade()

    def _fade(self) -> None:
        """Let what is new count, however much is known."""
        if self._all_windows > _MEMORY:
            self._all_hits *= _MEMORY / self._all_windows
            self._all_windows = _MEMORY
        for index, windows in enumerate(self._windows):
            if windows > _MEMORY:
                self._hits[index] *= _MEMORY / windows
                self._windows[index] = _MEMORY

    def probability(self, now: float) -> float:
        """Of exhaustion within the horizon, idle as the engine is."""
        assert self._since is not None
        index = _bin(now - self._since)
        windows, all_windows = self._windows[index], self._all_windows
        # This stretch, too: nothing followed its moments of more than a horizon ago.
        for bin_, seconds in _parts(self._since, now - self._horizon, self._since):
            all_windows += seconds / self._horizon
            if bin_ == index:
                windows += seconds / self._unit(index)
        shared = (self._all_hits + _FIRST * self._first) / (all_windows + _FIRST)
        return (self._hits[index] + _SHARED * shared) / (windows + _SHARED)

    def _unit(self, index: int) -> float:
        """Seconds in a bin that count once: moments of one horizon share their outcome."""
        if index + 1 == len(_EDGES):
            return self._horizon
        return min(self._horizon, _EDGES[index + 1] - _EDGES[index])


def _bin(seconds: float) -> int:
    return max(index for index, edge in enumerate(_EDGES) if edge <= max(0.0, seconds))


def _parts(begins: float, ends: float, since: float) -> list[tuple[int, float]]:
    """(bin, seconds) of a stretch from a moment in it on."""
    parts = []
    for index, edge in enumerate(_EDGES):
        low = max(since, begins + edge)
        high = min(ends, begins + _EDGES[index + 1]) if index + 1 < len(_EDGES) else ends
        if high > low:
            parts.append((index, high - low))
    return parts
