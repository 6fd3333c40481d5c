"""Says the same thing once a minute at most: what others cause must not fill a log."""

import threading
import time
from collections.abc import Callable

LOG_EVERY_NS = 60_000_000_000
MAX_KINDS = 256
"""Kinds that are remembered; then all are forgotten, and may be said again."""


class Seldom:
    """Remembers when each kind was last said. For any thread."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._said_ns: dict[str, int] = {}

    def is_due(self, kind: str) -> bool:
        """Return True at most once per interval for each kind."""
        now_ns = self._clock_ns()
        with self._lock:
            said_ns = self._said_ns.get(kind)
            if said_ns is not None and now_ns - said_ns < LOG_EVERY_NS:
                return False
            if len(self._said_ns) >= MAX_KINDS:
                self._said_ns.clear()
            self._said_ns[kind] = now_ns
            return True
