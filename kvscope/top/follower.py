"""Follows the servers of one place on a thread of its own; what it has seen can be read anytime.

A place that cannot be read keeps its last readings, and is asked again after a time that grows.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvscope.answer_document import AnswerError
from kvscope.top.course import History, Values
from kvscope.top.figures import EngineName
from kvscope.top.reading import ServerReading
from kvscope.top.sources import Source
from kvscope_exporter import words

logger = logging.getLogger(__name__)

MAX_PAUSE_SECONDS = 15.0
"""Between two attempts to reach a server that is gone."""
_NOTICE_SECONDS = 30.0
"""Time for which a return is mentioned."""
_MAX_WANTED = 100
"""Keys that wait while a recording moves."""
Key = tuple[str, EngineName]


@dataclass(frozen=True, slots=True)
class PlaceStatus:
    """The state of one place; never changed."""

    place: str
    servers: Sequence[ServerReading] = ()
    """The last readings; with a problem, old ones."""
    courses: Mapping[Key, Values] = field(default_factory=dict)
    problem: str | None = None
    """The reason why it cannot be read."""
    since: float | None = None
    """Unix time of the first failure since the last reading."""
    returned: str | None = None
    """Mentions a recent return after a failure."""


class Follower:
    """Reads a source every `interval` seconds; each new state calls `changed`, on its thread."""

    def __init__(
        self, source: Source, interval: float, changed: Callable[[], object] = lambda: None
    ) -> None:
        self.source = source
        self.seen = PlaceStatus(place=source.place)
        self._interval = interval
        self._changed = changed
        self._courses: dict[Key, History] = {}
        self._ended = False
        self._num_failures = 0
        self._gone_at = self._returned_at = 0.0
        self._wanted: deque[Callable[[], None]] = deque(maxlen=_MAX_WANTED)
        self._wake = threading.Event()

    def start(self) -> None:
        # A daemon: an attempt that a name server holds must not hold the end of the command.
        threading.Thread(target=self._run, name="kvscope-top", daemon=True).start()

    def read_now(self, after: Callable[[], None]) -> None:
        """Do not wait for the interval, but for this, on the follower's thread."""
        self._wanted.append(after)
        self._wake.set()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    def _run(self) -> None:
        while not self._ended:
            began = time.monotonic()
            self.step()
            self._changed()
            self._wake.wait(max(0.0, self.pause() - (time.monotonic() - began)))
            self._wake.clear()

    def step(self) -> None:
        """Read once."""
        try:
            while self._wanted:
                self._wanted.popleft()()
            servers = self.source.read()
        except AnswerError as error:
            self._fail(str(error))
            return
        except Exception as error:  # a bug must not end the thread, which would look like a freeze
            logger.exception("%s could not be read", self.source.place)
            self._fail(f"it failed here, a bug: {type(error).__name__}: {error}")
            return
        if self._num_failures:
            self._num_failures, self._returned_at = 0, time.time()
            self._gone_at = self.seen.since or self._returned_at
        courses = self._follow(servers)
        self.seen = PlaceStatus(self.seen.place, servers, courses, returned=self._notice())

    def _fail(self, problem: str) -> None:
        self._num_failures += 1
        self._returned_at = 0.0
        since = self.seen.since or time.time()
        self.seen = replace(self.seen, problem=problem, since=since, returned=None)

    def _follow(self, servers: Sequence[ServerReading]) -> dict[Key, Values]:
        here = {engine.key: engine for server in servers for engine in server.engines}
        self._courses = {key: self._courses.get(key) or History() for key in here}
        for key, engine in here.items():
            self._courses[key].add(engine)
        return {key: course.values() for key, course in self._courses.items()}

    def _notice(self) -> str | None:
        """The return after a failure, for a while."""
        back = self._returned_at
        if time.time() - back > _NOTICE_SECONDS:
            return None
        silence = f"{back - self._gone_at:,.0f} s without an answer"
        return f"back since {words.clock(back)}, after {silence}"

    def pause(self) -> float:
        """Seconds until the next reading."""
        longest = max(MAX_PAUSE_SECONDS, self._interval)
        return float(min(longest, self._interval * 2 ** min(10, max(0, self._num_failures - 1))))
