"""Lets an engine's steps through while a page is made in its process.

Python gives the interpreter to another thread when the one that has it waits, or after 5 ms: a page
that takes less than that would hold up a step for as long as it takes. Work offers turns at
suitable points, and pauses there briefly once it has run long enough.
"""

import time

TURN_SECONDS = 0.0005
"""Time that a page runs at a stretch; a single part of it may take longer."""
WAIT_SECONDS = 0.001


class ScrapeLimiter:
    """Turns of one piece of work; does nothing unless an engine runs in this process."""

    def __init__(self, *, beside_engine: bool) -> None:
        self._beside_engine = beside_engine
        self._began = 0.0

    def begin(self) -> None:
        """Begin a turn."""
        self._began = time.perf_counter()

    def offer(self) -> None:
        """Let others run if this turn has been long."""
        if self._beside_engine and time.perf_counter() - self._began > TURN_SECONDS:
            time.sleep(WAIT_SECONDS)
            self._began = time.perf_counter()
