"""Says what can happen again and again once a minute, with the number of times it was left out."""

import logging
import threading
import time

PERIOD_SECONDS = 60.0


class LogLimit:
    """One line per kind and minute. kinds: a closed set. Callable from any thread."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warning(self, kind: str, message: str) -> None:
        """Log this message, unless one of its kind was logged within the minute."""
        self.log(logging.WARNING, kind, message)

    def log(self, level: int, kind: str, message: str, error: BaseException | None = None) -> None:
        """Log this message, with the traceback of `error`, unless one of its kind was lately."""
        now = time.monotonic()
        with self._lock:
            last = self._last.get(kind)
            if last is not None and now - last < PERIOD_SECONDS:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return
            self._last[kind] = now
            left_out = self._left_out.pop(kind, 0)
        if left_out:
            message = f"{message} (and {left_out} times since this was last said)"
        self._logger.log(level, "%s", message, exc_info=error)
