"""Recorded calls on a scheduler, in a logical clock: in lockstep with the recording, or freely.

The server's own Python runs this file too, beside `worker.py`: it needs nothing of kvscope.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

Row = list[float]
"""Contents of a step: decodes, thousand tokens of their context, prompt tokens, chunks, million
pairs of attention in chunks, admissions."""
RESET = 0
"""An action of a step, beside the number of a call that came, or, negative, of one given up."""
_STUCK_STEPS = 10_000


class ReplayError(Exception):
    """Calls that this scheduler cannot serve; `str()` says why, in one line."""


@dataclass
class Call:
    """One sequence. Its content is known by the names of its full blocks, as far as they go."""

    number: int
    came: float
    """Seconds, when the front end took it."""
    prompt: int
    limit: int
    """The most tokens that it may produce."""
    output: int | None
    """Tokens that it produced; None: the recording ends before it, or its client gave it up."""
    produced: int = 0
    """Tokens until then."""
    priority: int = 0
    patience: float | None = None
    """Seconds after which its client gave it up; None: it did not."""
    after: int | None = None
    """The call whose end its client awaited; None: it waited for none."""
    think: float = 0.0
    """Seconds from that end until it came."""
    names: list[int | None] = field(default_factory=list)
    """56 bits of the name of each full block, from the first on; None: not known."""
    times: list[float] = field(default_factory=list)
    """The times of its output tokens."""

    def tokens(self, begin: int, end: int, size: int) -> list[int]:
        """Its tokens in [begin, end). Two calls have the same block exactly if they had then."""
        found: list[int] = []
        for block in range(begin // size, (end - 1) // size + 1):
            name = self.names[block] if block < len(self.names) else None
            word = (self.number << 24) + block if name is None else name
            found += [word >> 28, word & 0xFFFFFFF, *([block] * (size - 2))]
        first = begin // size * size
        return found[begin - first : end - first]


class Book(Protocol):
    """A scheduler with its pool: the part that decides."""

    preemptions: int
    queried: int
    hit: int
    """Prompt tokens looked up, and found, at first admissions."""

    def add(self, call: Call, prompt: list[int], limit: int, now: float) -> None: ...
    def give_up(self, number: int) -> None: ...
    def reset(self) -> None: ...
    def is_busy(self) -> bool: ...
    def counts(self) -> tuple[int, int]: ...
    def schedule(self) -> tuple[Any, Row]: ...
    def finish(
        self, plan: Any, token: Callable[[int, int], int]
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """Ends a step. token: of a call, at a place. Returns tokens by call, and calls that
        ended."""
        ...


class Duration:
    """The duration of a step: terms that were fitted, times what was left of a recorded step.

    That step is one of the same kind, `shift` seconds from the present one in the recording: a
    machine is slow for a while, whatever it does then.
    """

    def __init__(self, fitted: dict[str, Any], shift: float) -> None:
        self._terms: list[float] = fitted["terms"]
        self._decodes: list[float] = fitted["decodes"]
        self._times: list[list[float]] = fitted["times"]
        self._noise: list[list[tuple[float, float]]] = fitted["noise"]
        self._gaps: list[float] = fitted["gaps"]
        self._random = random.Random(shift)
        self._shift = shift
        whole = [time for times in self._times for time in times]
        self._begin, self._span = min(whole), max(1e-9, max(whole) - min(whole))

    def mean(self, row: Row) -> float:
        decodes = self._decodes
        seconds = decodes[min(int(row[0]), len(decodes) - 1)]
        for term, amount in zip(self._terms, row[1:], strict=True):
            seconds += term * amount
        return max(1e-5, seconds)

    def drawn(self, row: Row, now: float) -> float:
        """Seconds of the step that begins now."""
        kind = int(row[2] > 0)
        times = self._times[kind]
        if not times:
            return self.mean(row)
        at = self._begin + (now + self._shift - self._begin) % self._span
        ratio, rest = self._noise[kind][max(0, bisect_right(times, at) - 1)]
        return self.mean(row) * ratio + rest

    def gap(self) -> float:
        """Seconds from the end of a step to the beginning of the next one."""
        return self._random.choice(self._gaps)


def answer(asked: dict[str, Any], calls: Sequence[Call], book: Book) -> Any:
    """The contents of recorded `steps`, or the figures of a free replay with a `duration`."""
    if "steps" in asked:
        return lockstep(calls, asked["steps"], asked["block_size"], book)
    return serve(calls, asked, book)


def lockstep(
    calls: Iterable[Call], steps: Sequence[Sequence[int]], size: int, book: Book
) -> list[tuple[Row, int, int]]:
    """Schedule each recorded step again, which begins with its actions: calls that came.

    Returns the contents of the steps, and the sequences that ran and waited after each.
    """
    known = {call.number: call for call in calls}
    found: list[tuple[Row, int, int]] = []
    for actions in steps:
        for action in actions:
            if action == RESET:
                book.reset()
            elif action < 0:
                book.give_up(-action)
            else:
                call = known[action]
                limit = call.limit if call.output is None else call.output
                book.add(call, call.tokens(0, call.prompt, size), limit, call.came)
        plan, row = book.schedule()
        book.finish(plan, lambda number, at: known[number].tokens(at, at + 1, size)[0])
        found.append((row, *book.counts()))
    return found


def serve(calls: Iterable[Call], asked: dict[str, Any], book: Book) -> dict[str, float | None]:
    """Serve the calls freely, and return the figures.

    asked: "door", seconds from the front end to the scheduler; "largest", tokens of the largest
    recorded step; "until", the end of the recording, when the replay ends as well; and what
    `Duration` takes.
    """
    size, door, until = asked["block_size"], asked["door"], asked["until"]
    duration = Duration(asked["duration"], asked["shift"])
    served = {call.number: replace(call, times=[]) for call in calls}
    followers: defaultdict[int, list[Call]] = defaultdict(list)
    for call in served.values():
        if call.after is not None:
            followers[call.after].append(call)
    unfinished = set(served)
    due = [(call.came, call.number) for call in served.values() if call.after is None]
    heapq.heapify(due)
    patience: list[tuple[float, int]] = []
    now, steps, larger, idle = due[0][0] if due else until, 0, 0, 0

    def token(number: int, at: int) -> int:
        return served[number].tokens(at, at + 1, size)[0]

    def end(number: int) -> None:
        unfinished.discard(number)
        for call in followers[number]:
            call.came = now + call.think
            heapq.heappush(due, (call.came, call.number))

    while now < until:
        while due and due[0][0] + door <= now:
            call = served[heapq.heappop(due)[1]]
            limit = call.output if call.output is not None else max(1, call.produced)
            if call.patience is not None:
                limit = call.limit
                heapq.heappush(patience, (call.came + call.patience, call.number))
            book.add(call, call.tokens(0, call.prompt, size), limit, call.came)
        while patience and patience[0][0] <= now:
            number = heapq.heappop(patience)[1]
            if number in unfinished:
                book.give_up(number)
                end(number)
        if not book.is_busy():
            if not due:
                break
            now = max(now, due[0][0] + door)
            continue
        plan, row = book.schedule()
        if row[0] or row[2]:
            now, idle = now + duration.drawn(row, now), 0
            steps, larger = steps + 1, larger + (row[0] + row[2] > asked["largest"])
        else:
            idle += 1
            now += duration.gap() + 1e-3
            if idle > _STUCK_STEPS:
                raise ReplayError("a call waits that this pool can never hold")
        produced, ended = book.finish(plan, token)
        for number, count in produced:
            served[number].times += [now] * count
        for number in ended:
            end(number)
        now += duration.gap()
    found = figures(served.values(), book.preemptions, book.queried, book.hit)
    return found | {
        "larger_steps": larger / steps if steps else None,
        "unserved": sum(not call.times and call.came + door < until for call in served.values()),
    }


def figures(
    calls: Iterable[Call], preemptions: int, queried: int, hit: int
) -> dict[str, float | None]:
    """The figures that are compared; times in seconds, from when the front end took a call."""
    begun = [call for call in calls if call.times]
    first = sorted(call.times[0] - call.came for call in begun)
    between = sorted(b - a for c in begun for a, b in pairwise(c.times))
    seconds = max((c.times[-1] for c in begun), default=0.0) - min(
        (c.came for c in begun), default=0.0
    )
    return {
        "ttft_p50": _quantile(first, 0.5),
        "ttft_p95": _quantile(first, 0.95),
        "itl_p50": _quantile(between, 0.5),
        "itl_p95": _quantile(between, 0.95),
        "tokens_per_second": sum(len(c.times) for c in begun) / seconds if seconds else None,
        "preemptions": preemptions,
        "hit_ratio": hit / queried if queried else None,
    }


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[round(share * (len(ordered) - 1))] if ordered else None
