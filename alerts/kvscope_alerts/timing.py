"""Durations in rules. Tests shorten all of them together; the shipped files stay unchanged."""

import re
from dataclasses import dataclass

RECENT = "2m"
"""Two scrapes, also where they are a minute apart."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+)([smhd])")


def seconds_of(duration: str) -> int:
    """Seconds of a duration with one number and unit, as rules use them: 90s, 5m, 1h, 3d."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"{duration!r} is not a duration: expected a number and one of s, m, h, d")
    return int(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Shortens durations; `Timing()` leaves them unchanged."""

    divisor: float = 1.0
    """Every duration is divided by it."""
    shortest_range: int = 5
    """Shortest range in seconds, since it needs at least two scrapes; only with a divisor."""
    longest: int = 20
    """Longest duration in seconds, so that a test does not wait for days; only with a divisor."""

    def __post_init__(self) -> None:
        if self.divisor < 1:
            raise ValueError(f"divisor must be at least 1, got {self.divisor}")

    def range(self, duration: str) -> str:
        """A duration for a range selector, an offset or an evaluation interval."""
        return duration if self.divisor == 1 else f"{self.seconds(duration):g}s"

    def last(self, selector: str, within: str = RECENT, ago: str | None = None) -> str:
        """The value at the last scrape that succeeded: one that is lost, as on a busy machine, must
        neither resolve an alert nor restart its wait."""
        offset = "" if ago is None else f" offset {self.range(ago)}"
        return f"last_over_time({selector}[{self.range(within)}]{offset})"

    def wait(self, duration: str) -> str:
        """A duration for `for` and `keep_firing_for`; at least a second, so that alerts can be
        pending."""
        if self.divisor == 1:
            return duration
        return f"{max(1, min(self.longest, round(seconds_of(duration) / self.divisor)))}s"

    def seconds(self, duration: str) -> float:
        """A number of seconds, for comparisons with ages."""
        if self.divisor == 1:
            return seconds_of(duration)
        shortened = round(seconds_of(duration) / self.divisor)
        return max(self.shortest_range, min(self.longest, shortened))
