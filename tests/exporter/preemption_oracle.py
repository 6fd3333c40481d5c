"""The cost of preemption as slow and plain as can be: loops over all events."""

from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

from kvscope_events.events import (
    AllocationFailed,
    Batch,
    BlocksAllocated,
    BlocksEvicted,
    BlocksReleased,
    ContentDropped,
    PoolCreated,
    RequestPreempted,
    RequestResumed,
    SequenceFinished,
    StepCompleted,
)
from kvscope_events.vocabulary import PreemptionCause
from kvscope_exporter.state.preemption import Preemption


class Gap:
    """In place of batches that were lost."""


@dataclass(frozen=True)
class Line:
    """An event, or a gap, and its time."""

    event: Any
    time_ns: int = 0


Stream = list[Batch | Gap]
FIGURES = (
    *("preemptions", "discarded", "found", "swapped", "recomputed"),
    *("abandoned", "lost", "waiting", "stalled_ns"),
)
LOSSES = ("preempted", "swapped_out")
TURNS = (RequestPreempted, RequestResumed, SequenceFinished)


def lines_of(stream: Stream) -> list[Line]:
    lines = []
    for part in stream:
        if isinstance(part, Gap):
            lines.append(Line(part))
        else:
            lines += [Line(event, part.time_ns) for event in part.events]
    return lines


def play(stream: Stream, fold: Preemption) -> None:
    """The same stream through the fold."""
    for part in stream:
        if isinstance(part, Gap):
            fold.on_gap()
        else:
            fold.on_batch(part)
        fold.check()


def turn_after(lines: list[Line], place: int, sequence: int) -> int:
    """The line that reports a victim's fate; the end of all lines: no line does."""
    for later in range(place + 1, len(lines)):
        event = lines[later].event
        if isinstance(event, Gap) or (isinstance(event, TURNS) and event.sequence == sequence):
            return later
    return len(lines)


def waits(lines: list[Line], place: int, sequence: int) -> bool:
    """Whether a sequence is a victim that waits, just before this line."""
    for earlier in range(place - 1, -1, -1):
        event = lines[earlier].event
        if isinstance(event, Gap):
            return False
        if isinstance(event, TURNS) and event.sequence == sequence:
            return isinstance(event, RequestPreempted)
    return False


def told_before(lines: list[Line], place: int) -> list[int]:
    """The lines between a preemption and what begins the account of it."""
    for earlier in range(place - 1, -1, -1):
        if isinstance(lines[earlier].event, AllocationFailed):
            return list(range(earlier, place))
        if isinstance(lines[earlier].event, RequestPreempted | StepCompleted | Gap):
            return list(range(earlier + 1, place))
    return list(range(place))


def given_back(event: BlocksReleased) -> dict[int, bool]:
    return {
        **dict.fromkeys(event.cached, True),
        **dict.fromkeys(event.shared, True),
        **dict.fromkeys(event.free, False),
    }


def blocks_of(lines: list[Line], place: int, turn: int) -> tuple[Any, Any]:
    """The sequences that took a victim's blocks, and how many kept their content; None twice:
    unknown."""
    sequence = lines[place].event.sequence
    held: dict[int, bool] = {}
    taken: dict[int | None, int] = {}
    is_known = False
    for earlier in told_before(lines, place):
        event = lines[earlier].event
        if (
            isinstance(event, BlocksReleased)
            and event.cause in LOSSES
            and event.sequence == sequence
            and not waits(lines, earlier, sequence)
        ):
            held.update(given_back(event))
            is_known = True
    for line in lines[place + 1 : turn]:
        event = line.event
        if isinstance(event, BlocksAllocated) and event.sequence == sequence:
            break
        if isinstance(event, PoolCreated):
            return None, None
        if isinstance(event, BlocksAllocated):
            for block in event.blocks:
                if held.pop(block, None) is not None:
                    taken[event.sequence] = taken.get(event.sequence, 0) + 1
        elif isinstance(event, BlocksReleased):
            held.update({block: False for block in event.free if block in held})
            if event.cause in LOSSES and event.sequence == sequence:
                held.update(given_back(event))
                is_known = True
        elif isinstance(event, ContentDropped) or (
            isinstance(event, BlocksEvicted) and event.cause != "capacity"
        ):
            held.update({block: False for block in event.blocks if block in held})
    else:
        if turn < len(lines) and isinstance(lines[turn].event, Gap | RequestPreempted):
            return None, None
    return (taken, sum(held.values())) if is_known else (None, None)


def one(lines: list[Line], place: int) -> dict[str, Any]:
    """All that is known of the preemption in this line."""
    event, time_ns = lines[place].event, lines[place].time_ns
    turn = turn_after(lines, place, event.sequence)
    answer = lines[turn] if turn < len(lines) else Line(None)
    state, stalled_ns, found, swapped, recomputed = "waiting", None, None, None, None
    if isinstance(answer.event, RequestResumed):
        state, stalled_ns = "resumed", answer.event.stalled_ns
        found, recomputed = answer.event.cached_tokens, answer.event.recompute_tokens
        swapped = answer.event.swapped_tokens
    elif isinstance(answer.event, SequenceFinished):
        state, stalled_ns = "ended", max(0, answer.time_ns - time_ns)
    elif answer.event is not None:
        state = "lost"
    before = [lines[earlier].event for earlier in told_before(lines, place)]
    shortages = [e for e in before if isinstance(e, AllocationFailed)]
    taken_by, kept = blocks_of(lines, place, turn)
    return {
        "event": event,
        "state": state,
        "stalled_ns": stalled_ns,
        "found": found,
        "swapped": swapped,
        "recomputed": recomputed,
        "wanted_by": shortages[0] if shortages and event.cause == "out_of_blocks" else None,
        "taken_by": None if taken_by is None else list(taken_by.items()),
        "kept": kept,
    }


def history(stream: Stream) -> list[dict[str, Any]]:
    """Every preemption, the oldest first."""
    lines = lines_of(stream)
    return [
        one(lines, place)
        for place, line in enumerate(lines)
        if isinstance(line.event, RequestPreempted)
    ]


def history_of(fold: Preemption) -> list[dict[str, Any]]:
    """The fold's knowledge of the latest preemptions, in the same form."""
    return [
        {
            "event": victim.preempted,
            "state": victim.state,
            "stalled_ns": victim.stalled_ns,
            "found": None if victim.resumed is None else victim.resumed.cached_tokens,
            "swapped": None if victim.resumed is None else victim.resumed.swapped_tokens,
            "recomputed": None if victim.resumed is None else victim.resumed.recompute_tokens,
            "wanted_by": victim.wanted_by,
            "taken_by": None if victim.taken_by is None else list(victim.taken_by.items()),
            "kept": fold.num_kept(victim),
        }
        for victim in fold.history
    ]


def bill(stream: Stream) -> dict[tuple[str, str], dict[str, int]]:
    """Sums by mode and cause; under empty ones what answers no preemption that was seen."""
    kinds = product(["recompute"], get_args(PreemptionCause))
    sums = {kind: dict.fromkeys(FIGURES, 0) for kind in kinds}
    for each in history(stream):
        event = each["event"]
        account = sums.setdefault((event.mode, event.cause), dict.fromkeys(FIGURES, 0))
        account["preemptions"] += 1
        account["discarded"] += event.discarded_tokens
        account["stalled_ns"] += each["stalled_ns"] or 0
        account["found"] += each["found"] or 0
        account["swapped"] += each["swapped"] or 0
        account["recomputed"] += each["recomputed"] or 0
        where = {"ended": "abandoned", "lost": "lost", "waiting": "waiting"}.get(each["state"])
        if where is not None:
            account[where] += event.discarded_tokens
    lines = lines_of(stream)
    for place, line in enumerate(lines):
        event = line.event
        if isinstance(event, RequestResumed) and not waits(lines, place, event.sequence):
            account = sums.setdefault(("", ""), dict.fromkeys(FIGURES, 0))
            account["found"] += event.cached_tokens
            account["swapped"] += event.swapped_tokens
            account["recomputed"] += event.recompute_tokens
            account["stalled_ns"] += event.stalled_ns
    return sums


def bill_of(fold: Preemption) -> dict[tuple[str, ...], dict[str, int]]:
    """The fold's sums, in the same words."""
    return {
        kind: {
            "preemptions": costs.preemptions,
            "discarded": costs.discarded_tokens,
            "found": costs.found_tokens,
            "swapped": costs.swapped_tokens,
            "recomputed": costs.recomputed_tokens,
            "abandoned": costs.abandoned_tokens,
            "lost": costs.lost_tokens,
            "waiting": fold.waiting_tokens(kind),
            "stalled_ns": costs.stalled_ns,
        }
        for kind, costs in fold.costs.items()
    }
