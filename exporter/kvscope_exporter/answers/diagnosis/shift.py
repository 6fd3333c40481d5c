"""Finds where a signal left its usual level, and how far."""

from collections.abc import Sequence
from math import inf
from statistics import median
from typing import NamedTuple

RECENT_SLICES = 30
"""An incident that has been over for five minutes no longer counts."""
FEWEST = 6
"""A minute is the least to know a usual level from."""
_LONGEST_PAUSE = 2
"""Slices that may look as usual within an incident."""


class Shift(NamedTuple):
    """A stretch of a signal."""

    begin: int
    """Index of its first slice."""
    end: int
    """Behind its last one."""
    before: float
    during: float
    """Its median then."""
    extreme: float
    is_over: bool


def risen(
    values: Sequence[float | None],
    *,
    ratio: float,
    floor: float,
    least: int = 2,
    unsaid: Sequence[bool] = (),
) -> Shift | None:
    """The last stretch above `ratio` times the usual level, and by at least `floor`.

    The usual level is the lowest quartile, so an incident may fill most of what is known. least:
    slices of it. unsaid: slices that are not above it for another reason than that it is over.
    """
    usual = _quartile(values)
    if usual is None:
        return None
    out = excesses(values, ratio=ratio, floor=floor)
    if unsaid:
        said = zip(values, out, unsaid, strict=True)
        values = [None if unknown and not is_out else value for value, is_out, unknown in said]
    return _last(values, out, usual, least)


def excesses(values: Sequence[float | None], *, ratio: float, floor: float) -> list[bool]:
    """The slices above the usual level, as `risen` has it; none if that is not known."""
    usual = _quartile(values)
    limit = inf if usual is None else max(usual * ratio, usual + floor)
    return [value is not None and value > limit for value in values]


def fallen(values: Sequence[float | None], *, by: float, least: int = 2) -> Shift | None:
    """The last stretch below the usual level, the highest quartile, by more than `by`."""
    mirrored = [None if value is None else -value for value in values]
    usual = _quartile(mirrored)
    if usual is None:
        return None
    out = [value is not None and value > usual + by for value in mirrored]
    shift = _last(mirrored, out, usual, least)
    if shift is None:
        return None
    return shift._replace(before=-shift.before, during=-shift.during, extreme=-shift.extreme)


def occurred(values: Sequence[float], *, least: float) -> Shift | None:
    """The last stretch in which something that should not happen did, `least` times or more."""
    shift = _last(values, [value > 0 for value in values], 0.0, 1)
    if shift is None or sum(values[shift.begin : shift.end]) < least:
        return None
    return shift


def exceeded(values: Sequence[float | None], level: float) -> Shift | None:
    """The last stretch above a level, however usual it is."""
    usual = _quartile(values)
    if usual is None:
        return None
    return _last(values, [value is not None and value > level for value in values], usual, 2)


def _quartile(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 4] if len(known) >= FEWEST else None


def _last(
    values: Sequence[float | None], out: Sequence[bool], usual: float, least: int
) -> Shift | None:
    end = next((index + 1 for index in range(len(out) - 1, -1, -1) if out[index]), None)
    if end is None or end < len(out) - RECENT_SLICES:
        return None
    begin = end - 1
    for index in range(end - 1, -1, -1):
        if out[index]:
            begin = index
        elif begin - index > _LONGEST_PAUSE and values[index] is not None:
            break
    inside = [value for value in values[begin:end] if value is not None]
    if sum(out[begin:end]) < least:
        return None
    return Shift(
        begin=begin,
        end=end,
        before=usual,
        during=median(inside),
        extreme=max(inside),
        is_over=end < len(out) - _LONGEST_PAUSE,
    )
