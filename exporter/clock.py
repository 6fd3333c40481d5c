"""The two clocks of this process, replaceable in tests and by a replay."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

HELD_UP_NS = 4 * 10**9
"""A turn of a second that takes so long was held up; less than a source may be silent."""


class Moment(NamedTuple):
    """Both clocks at once."""

    monotonic_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class Clock:
    """Intervals from the monotonic clock; the wall clock only for display."""

    monotonic_ns: Callable[[], int] = time.monotonic_ns
    wall_ns: Callable[[], int] = time.time_ns
    _held: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    @contextmanager
    def held(self) -> Iterator[Moment]:
        """One moment for all that this thread shows inside, so that the ages on a page are those of
        one moment, which a replay can repeat."""
        moment = self._held.moment = self.now()
        try:
            yield moment
        finally:
            self._held.moment = None

    def now(self) -> Moment:
        """The moment that is shown: the one that this thread holds, or the present."""
        held: Moment | None = getattr(self._held, "moment", None)
        return Moment(self.monotonic_ns(), self.wall_ns()) if held is None else held

    def wall_seconds(self, monotonic_ns: int) -> float:
        """Convert a monotonic reading of this process to Unix time."""
        now = self.now()
        return (now.wall_ns - now.monotonic_ns + monotonic_ns) / 1e9


class Turns:
    """The turns of a thread that looks every second whether others have fallen silent."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._last_ns = monotonic_ns()

    def was_held_up(self) -> bool:
        """Whether this process has just been stopped, as by SIGSTOP or with its machine: what came
        meanwhile is still to be read, and the silence is ours. Called once a turn."""
        last_ns, self._last_ns = self._last_ns, self._monotonic_ns()
        return self._last_ns - last_ns > HELD_UP_NS
