"""The one error of a step that the engine survives, and how it is logged."""

import logging
import time
from collections.abc import Callable

from kvscope_events.throttle import Throttle

logger = logging.getLogger(__name__)

_PERIOD_NS = 1_000_000_000


class DeviceOutOfMemoryError(Exception):
    """The device (or on a CPU the host) could not provide the memory that a step requested.

    The scheduler has not seen any results: the step can be retried, smaller.
    """

    def __init__(self, wanted_bytes: int | None) -> None:
        wanted = "" if wanted_bytes is None else f": {wanted_bytes} bytes wanted"
        super().__init__(f"out of device memory{wanted}")
        self.wanted_bytes = wanted_bytes


class OutOfMemoryLog:
    """Logs at most one line a second: on a crowded device, steps fail by the thousand."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._throttle = Throttle(clock_ns, _PERIOD_NS)

    def log(self, error: DeviceOutOfMemoryError, retry_tokens: int | None) -> None:
        """retry_tokens: limit of the next step; None: it cannot shrink, its sequence ends."""
        unlogged = self._throttle.take("")
        if unlogged is None:
            return
        outcome = (
            "the smallest step does not fit, its request ends with an error"
            if retry_tokens is None
            else f"next step: at most {retry_tokens} tokens"
        )
        more = f" ({unlogged} more since the last line)" if unlogged else ""
        logger.warning("%s; %s%s", error, outcome, more)
