"""Gaps of a recording: times of which it lacks something, and the words for people."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from kvscope_events.printable import quoted


class Gap(NamedTuple):
    """Times are Unix times in nanoseconds."""

    begins_ns: int
    ends_ns: int
    records: int
    """Records that were given up; 0: not known."""
    reason: str


def told(gaps: Sequence[Gap]) -> str | None:
    """A sentence about the longest; None without gaps."""
    if not gaps:
        return None
    longest = max(gaps, key=lambda gap: gap.ends_ns - gap.begins_ns)
    lost = f"; {longest.records:,} records are lost" if longest.records else ""
    span = f"{_time(longest.begins_ns)} to {_time(longest.ends_ns)} UTC"
    number = "a gap" if len(gaps) == 1 else f"{len(gaps)} gaps, the longest"
    return f"it has {number} from {span}: {quoted(longest.reason)}{lost}"


def _time(wall_ns: int) -> str:
    try:
        return datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a hostile recording may state any
        return "an impossible time"
