"""A simulated replica: a plain LRU pool of names, and a clock that says how busy it is.

The clock is a stated model, not a measurement: prompts are computed one after another, in order of
arrival, at a fixed pace; every request that runs decodes at a pace of its own beside them.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The speed of a replica."""

    prefill: float
    """Prompt tokens a second, of the whole replica."""
    decode: float
    """Output tokens a second, of each request."""


class Replica:
    """Running requests do not hold their blocks: each gives them back at once."""

    def __init__(self, capacity: int, pace: Pace) -> None:
        """capacity: blocks, at least 1."""
        self.capacity = capacity
        self.outstanding = 0
        """Blocks of the prompts of requests that have not ended."""
        self._pace = pace
        self._resident: OrderedDict[int, None] = OrderedDict()  # the oldest first
        self._free_at = 0.0  # when all prompts taken so far are computed
        self._ends: list[tuple[float, int]] = []

    def prefix(self, names: Sequence[int]) -> int:
        """Leading names that it holds."""
        resident = self._resident
        found = 0
        for name in names:
            if name not in resident:
                break
            found += 1
        return found

    def touch(self, path: Sequence[int]) -> tuple[list[int], list[int]]:
        """Make a path the newest, its beginning newest of all.

        Returns the names that came, and those that went for lack of room; a path that is longer
        than the pool has names in both.
        """
        resident = self._resident
        came = []
        for name in reversed(path):
            if name in resident:
                resident.move_to_end(name)
            else:
                resident[name] = None
                came.append(name)
        excess = len(resident) - self.capacity
        return came, [resident.popitem(last=False)[0] for _ in range(excess)]

    def advance(self, now: float) -> None:
        """Forget requests that have ended; `now` never falls."""
        ends = self._ends
        while ends and ends[0][0] <= now:
            self.outstanding -= heappop(ends)[1]

    def serve(self, now: float, blocks: int, computed_tokens: int, output_tokens: int) -> float:
        """Take a request; returns the seconds until its prompt is begun.

        computed_tokens: of its prompt, those that are not found.
        """
        begin = max(now, self._free_at)
        self._free_at = begin + computed_tokens / self._pace.prefill
        self.outstanding += blocks
        heappush(self._ends, (self._free_at + output_tokens / self._pace.decode, blocks))
        return begin - now


def advance_all(replicas: Iterable[Replica], now: float) -> None:
    """Advance every clock, so that they can be compared."""
    for replica in replicas:
        replica.advance(now)
