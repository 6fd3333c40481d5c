"""Sources of the calls: a schedule that nothing changes, or clients that wait for their answers."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Protocol

Lengths = Callable[[Random], tuple[int, int, int]]
"""Prompt tokens, output tokens and max_tokens of the next request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of a load, of one sequence."""

    at: float
    """Seconds since the load began."""
    prompt: list[int] | int
    """Its tokens, or how many of them: those are like no other's but for the first `shared`."""
    output: int
    """Tokens until it stops by itself."""
    max_tokens: int
    shared: int = 0


class Source(Protocol):
    """Arriving calls, which may depend on the answers."""

    def take(self, now: float) -> list[Call]:
        """Calls that have come by now, in order; each once."""

    def give_up(self, now: float) -> list[Call]:
        """Calls whose clients have hung up by now; each once."""

    def answered(self, call: Call, now: float) -> None:
        """A call has ended by itself."""

    def next_at(self) -> float:
        """When something comes or hangs up if nothing is answered before; infinite: never."""


class Schedule:
    """Calls at times that are known beforehand."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._coming = deque(calls)

    def take(self, now: float) -> list[Call]:
        taken = []
        while self._coming and self._coming[0].at <= now:
            taken.append(self._coming.popleft())
        return taken

    def give_up(self, now: float) -> list[Call]:
        return []

    def answered(self, call: Call, now: float) -> None:
        """Nothing depends on it."""

    def next_at(self) -> float:
        return self._coming[0].at if self._coming else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Clients that send call after call from one time to another, each waiting for its answer."""

    begins: float
    ends: float
    clients: int
    lengths: Lengths
    think_seconds: float = 0.0
    """Mean time from an answer to the next call; exponential."""
    hang_up: bool = False
    """Calls in flight at the end are cut off, not waited for."""


class Clients:
    """Plays sessions: a closed loop."""

    def __init__(self, random: Random, sessions: Sequence[Session]) -> None:
        self._random = random
        self._due: list[tuple[float, int, Session]] = []
        self._ends = deque(sorted((s for s in sessions if s.hang_up), key=lambda s: s.ends))
        self._open: dict[int, tuple[Call, Session]] = {}
        self._num_due = 0
        for session in sessions:
            for _ in range(session.clients):
                first = random.uniform(0.0, max(1.0, session.think_seconds))
                self._come_at(session.begins + first, session)

    def take(self, now: float) -> list[Call]:
        taken = []
        while self._due and self._due[0][0] <= now:
            at, _, session = heappop(self._due)
            if at < session.ends:
                prompt, output, most = session.lengths(self._random)
                call = Call(at=at, prompt=prompt, output=output, max_tokens=most)
                self._open[id(call)] = call, session
                taken.append(call)
        return taken

    def give_up(self, now: float) -> list[Call]:
        cut = []
        while self._ends and self._ends[0].ends <= now:
            ended = self._ends.popleft()
            cut += [call for call, session in self._open.values() if session is ended]
        for call in cut:
            del self._open[id(call)]
        return cut

    def answered(self, call: Call, now: float) -> None:
        _, session = self._open.pop(id(call))
        think = session.think_seconds
        self._come_at(now + (self._random.expovariate(1 / think) if think else 0.0), session)

    def next_at(self) -> float:
        cut = self._ends[0].ends if self._ends else math.inf
        return min(cut, self._due[0][0] if self._due else math.inf)

    def _come_at(self, at: float, session: Session) -> None:
        self._num_due += 1
        heappush(self._due, (at, self._num_due, session))
