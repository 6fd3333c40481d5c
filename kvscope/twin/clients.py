"""Clients that wait for an answer before they ask again: their calls follow ends, not a clock."""

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kvscope.twin.replay import Call

_WINDOW_SECONDS = 0.1
"""From an end to the next call of a client that does not think."""
_CLOSED = 0.8
_MOST_CHANCE = 0.5
"""Share of the time that windows may cover: beyond it, following an end says nothing."""
_LEVEL = 0.75
_LEAST_CALLS = 20


@dataclass(frozen=True)
class Clients:
    """The clients, as far as their arrivals show them."""

    is_closed: bool
    following: float
    """Share of the calls that came just after an end."""
    followers: int
    """Calls that are replayed after the end of an earlier call and the time to think."""


def link_followers(calls: Sequence[Call]) -> Clients:
    """Set `after` of the calls whose clients awaited an earlier answer.

    A call that repeats an answer has it already, from its names. In a closed loop each call that
    came after an end follows the latest one that none has followed yet.
    """
    known = {call.number: call for call in calls}
    for call in calls:
        if call.after not in known or call.after == call.number:
            call.after = None
    ordered = sorted(calls, key=lambda call: call.came)
    ends = sorted((_end(call), call.number) for call in calls if call.times)
    times = [end for end, _ in ends]
    follow = sum(_follows(times, call.came) for call in ordered)
    share = follow / len(ordered) if ordered else 0.0
    is_closed = len(ordered) >= _LEAST_CALLS and (
        (share >= _CLOSED and _covered(times) <= _MOST_CHANCE) or _is_level(ordered, times)
    )
    if is_closed:
        _link(ordered, ends)
    for call in calls:
        if call.after is not None:
            call.think = max(0.0, call.came - _end(known[call.after]))
    return Clients(is_closed, share, sum(call.after is not None for call in calls))


def _end(call: Call) -> float:
    if call.patience is not None:
        return call.came + call.patience
    return call.times[-1] if call.times else call.came


def _follows(ends: Sequence[float], came: float) -> bool:
    at = bisect_right(ends, came)
    return at > 0 and came - ends[at - 1] <= _WINDOW_SECONDS


def _covered(ends: Sequence[float]) -> float:
    """Share of the time that is within the window after an end."""
    if len(ends) < 2:
        return 0.0
    covered = sum(min(_WINDOW_SECONDS, b - a) for a, b in pairwise(ends))
    return covered / (ends[-1] - ends[0]) if ends[-1] > ends[0] else 1.0


def _is_level(ordered: Sequence[Call], ends: Sequence[float]) -> bool:
    """Whether as many calls were in flight at nearly every arrival."""
    flying = [at + 1 - bisect_right(ends, call.came) for at, call in enumerate(ordered)]
    most = max(flying)
    settled = flying[most:]
    return (
        most > 1
        and len(settled) >= _LEAST_CALLS
        and sum(count >= _LEVEL * most for count in settled) >= _CLOSED * len(settled)
    )


def _link(ordered: Sequence[Call], ends: Sequence[tuple[float, int]]) -> None:
    free: list[tuple[float, int]] = []
    at = 0
    taken = {call.after for call in ordered}
    for call in ordered:
        while at < len(ends) and ends[at][0] <= call.came:
            if ends[at][1] not in taken:
                insort(free, ends[at])
            at += 1
        if call.after is None and free:
            call.after = free.pop()[1]
