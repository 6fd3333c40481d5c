"""Work that a thread of its own does again and again."""

import logging
import threading
from collections.abc import Callable

from kvscope_events.throttle import Throttle

logger = logging.getLogger(__name__)


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
