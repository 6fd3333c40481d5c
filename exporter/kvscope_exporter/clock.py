"""The two clocks of this process, replaceable in tests and by a replay; threads that go by time."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from kvscope_events.throttle import Throttle

logger = logging.getLogger(__name__)

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


class BackgroundLoop:
    """Calls `work` at this interval, first one interval after `start`, until `end` or `stop`.

    An exception is a bug: it is logged, at most once a minute, and the loop goes on.
    """

    def __init__(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        """name: the thread's."""
        self._work = work
        self._seconds = seconds
        self._throttle = Throttle()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Called once."""
        self._thread.start()

    def end(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._ending.set()

    def stop(self) -> None:
        """End the thread, after the work that it is doing."""
        self.end()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._seconds):
            try:
                self._work()
            except Exception:
                if self._throttle.allow("bug"):
                    logger.exception("%s: a bug; it goes on", self._thread.name)
