"""The two clocks of this process, replaceable in tests."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Intervals from the monotonic clock; the wall clock only for display."""

    monotonic_ns: Callable[[], int] = time.monotonic_ns
    wall_ns: Callable[[], int] = time.time_ns

    def wall_seconds(self, monotonic_ns: int) -> float:
        """Convert a monotonic reading of this process to Unix time."""
        return (self.wall_ns() - self.monotonic_ns() + monotonic_ns) / 1e9
