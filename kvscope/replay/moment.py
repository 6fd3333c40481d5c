"""A moment of a recording, as people write it."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

FORMS = (
    "12:50:40 or 2026-11-24T12:50:40 (UTC), a Unix time, +90s from the beginning or "
    "-5m from the end"
)
AFTER_NS = 120 * 10**9
_FAR = 1e12
"""Beyond every recording, in any unit."""
_UNITS = {"s": 1, "m": 60, "h": 3600}


def parse_moment(text: str, begins_ns: int, ends_ns: int) -> int:
    """Wall clock in ns; a time of day is that of the recording's span. Raises ValueError."""
    relative = re.fullmatch(r"([+-])(\d+(?:\.\d+)?)([smh]?)", text)
    if relative:
        sign, number, unit = relative.groups()
        offset = round(min(float(number), _FAR) * _UNITS[unit or "s"] * 1e9)
        return begins_ns + offset if sign == "+" else ends_ns - offset
    if re.fullmatch(r"\d{9,11}(\.\d+)?", text):
        return round(float(text) * 1e9)
    if re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?", text):
        return _of_day(text, begins_ns, ends_ns)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: expected {FORMS}") from None
    return _ns(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def moment_within(text: str, begins_ns: int, ends_ns: int) -> int:
    """A moment of the recording; ValueError names what it has."""
    moment = parse_moment(text, begins_ns, ends_ns)
    if not begins_ns <= moment <= ends_ns:
        raise ValueError(f"{text}: the recording has {shown(begins_ns)} to {shown(ends_ns)}, UTC")
    return moment


def moment_asked(at: str | None, begins_ns: int, ends_ns: int, marks_ns: Sequence[int]) -> int:
    """The moment at which a recording is asked for the cause: without a wish, when the consequences
    of its last mark are visible, or its end. ValueError names what it has."""
    if at is not None:
        return moment_within(at, begins_ns, ends_ns)
    return min(ends_ns, marks_ns[-1] + AFTER_NS) if marks_ns else ends_ns


def shown(wall_ns: int) -> str:
    """UTC, to the millisecond."""
    moment = datetime.fromtimestamp(wall_ns / 1e9, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"


def _of_day(text: str, begins_ns: int, ends_ns: int) -> int:
    """The first such time after the beginning, or on the day of the beginning."""
    hours, minutes, *seconds = text.split(":")
    day = datetime.fromtimestamp(begins_ns / 1e9, UTC).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    of_day = timedelta(
        hours=int(hours), minutes=int(minutes), seconds=float(seconds[0] if seconds else 0)
    )
    moment = _ns(day + of_day)
    tomorrow = _ns(day + timedelta(days=1) + of_day)
    return tomorrow if moment < begins_ns and tomorrow <= ends_ns else moment


def _ns(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6) * 1000
