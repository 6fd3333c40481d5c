"""At most once a minute: messages that repeat, or that others can provoke, must not fill a log."""

import logging
import threading
import time
from collections.abc import Callable

MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS
MAX_KEYS = 256
"""Maximum number of remembered keys; one more clears them all, so that all are allowed again."""


class Throttle:
    """Remembers when each key was last allowed. For any thread."""

    def __init__(
        self, clock_ns: Callable[[], int] = time.monotonic_ns, period_ns: int = MINUTE_NS
    ) -> None:
        self._clock_ns = clock_ns
        self._period_ns = period_ns
        self._lock = threading.Lock()
        self._allowed: dict[str, tuple[int, int]] = {}
        """By key: when it was last allowed, and how often it was refused since."""

    def allow(self, key: str) -> bool:
        """Whether this key may be used now: once per period."""
        return self.take(key) is not None

    def take(self, key: str) -> int | None:
        """None: not now. Otherwise how often the key was refused since it was last allowed."""
        now_ns = self._clock_ns()
        with self._lock:
            last_ns, refused = self._allowed.get(key, (None, 0))
            if last_ns is not None and now_ns - last_ns < self._period_ns:
                self._allowed[key] = last_ns, refused + 1
                return None
            if last_ns is None and len(self._allowed) >= MAX_KEYS:
                self._allowed.clear()
            self._allowed[key] = now_ns, 0
            return refused


class ThrottledLog:
    """One line per kind and minute, with the number of those left out. For any thread."""

    def __init__(
        self, logger: logging.Logger, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._logger = logger
        self._throttle = Throttle(clock_ns)

    def warning(self, kind: str, message: str) -> None:
        """Log this message, unless one of its kind was logged within the minute."""
        self.log(logging.WARNING, kind, message)

    def log(
        self, level: int, kind: str, message: str, error: "BaseException | None" = None
    ) -> None:
        """Log this message, with the traceback of `error`, unless its kind was logged lately."""
        left_out = self._throttle.take(kind)
        if left_out is None:
            return
        if left_out:
            message = f"{message} (and {left_out} times since this was last said)"
        self._logger.log(level, "%s", message, exc_info=error)
