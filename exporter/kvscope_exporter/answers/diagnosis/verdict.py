"""The verdict over time: it holds until another cause has led for a minute, or the harm has been
over for five. It follows from the slices alone, so that it is the same whenever one asks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from kvscope_exporter.answers.diagnosis.course import Course
from kvscope_exporter.answers.diagnosis.finding import by_kind
from kvscope_exporter.answers.diagnosis.harm import MINUTE, WAITS, Harm
from kvscope_exporter.catalogue.incident import Kind

OVER = 30
"""Slices after its end for which harm is still reported."""
_AHEAD = 1.2
"""Times what the present cause weighs, for another to lead."""
_PAUSE = 2
"""Slices without it within one stretch."""
_OF_ONE_QUEUE: frozenset[Kind] = frozenset((*WAITS, "preemptions"))
"""The same harm goes on while one of these takes over from another."""
_LEVEL = 0.25
"""Share of the way from its level before to that of the harm: above it, it had begun."""


@dataclass
class Verdict:
    """A stretch of harm with one cause."""

    kind: Kind
    severity: int
    begin: int
    """Its first slice."""
    last: int
    """The last slice whose minute had harm."""


def verdict_of(course: Course, harm_at: Callable[[int], Harm | None]) -> Verdict | None:
    """The present one; None: nothing was wrong in the last five minutes."""
    present: Verdict | None = None
    rival, led = None, 0
    for index in range(len(course.slices)):
        harm = harm_at(index)
        if present is not None and index - present.last > OVER:
            present = None
        if harm is None:
            rival, led = None, 0
            continue
        leads = present is not None and _weighs_more(harm, present.kind)
        if present is None or harm.severity > present.severity:
            present = _begun(course, index, harm)
        elif harm.severity == present.severity and leads:
            led = led + 1 if harm.kind == rival else 1
            rival = harm.kind
            if led >= MINUTE:
                former, present = present, _begun(course, index - MINUTE + 1, harm)
                if {former.kind, present.kind} <= _OF_ONE_QUEUE:
                    present.begin = min(present.begin, former.begin)
        else:
            rival, led = None, 0
        present.last = index
    return present


def _weighs_more(harm: Harm, than: Kind) -> bool:
    if harm.kind == than:
        return False
    return harm.seconds.get(harm.kind, 1.0) >= _AHEAD * harm.seconds.get(than, 0.0)


def _begun(course: Course, index: int, harm: Harm) -> Verdict:
    """Since the slice in which it rose and stayed, in the minutes up to the first that was harm."""
    values = [_amount(course, number, harm.kind) for number in range(index + 1)]
    before = values[:-MINUTE]
    usual = median(before) if before else 0.0
    level = usual + _LEVEL * max(0.0, max(values[-MINUTE:]) - usual)
    begin, pause = index, 0
    for number in range(index, -1, -1):
        if values[number] > level or (level == 0 and values[number] > 0):
            begin, pause = number, 0
        else:
            pause += 1
            if pause > _PAUSE and (number <= index - MINUTE or begin < index):
                break
    return Verdict(harm.kind, harm.severity, begin, index)


def _amount(course: Course, index: int, kind: Kind) -> float:
    """The amount of it in a slice; in the queue it shows at once, elsewhere when tokens come."""
    sums = course.slices[index].sums
    if kind in WAITS:
        return by_kind(list(sums.standing)).get(kind, 0.0)
    counts: dict[Kind, float] = {
        "out_of_memory": sums.out_of_memory,
        "failures": sums.failed + sums.met_dead,
        "refusals": sums.crowded_out,
        "cache_reset": sums.resets,
        "cache_too_small": sums.evicted_blocks / max(1, sums.queried_blocks),
        "below_block": sums.missed_blocks[-1],
        "new_content": sums.missed_blocks[0] / max(1, sums.prompts),
        "slow_steps": sums.slow_ns,
        "preemptions": sums.preemptions,
    }
    if kind in counts:
        return counts[kind]
    return sum(by_kind(list(each)).get(kind, 0.0) for each in (sums.late_parts, sums.late_tokens))
