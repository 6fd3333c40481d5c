"""Faults of one source: counted by kind, logged once per kind and minute."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from kvscope_events.throttle import Throttle

logger = logging.getLogger(__name__)

Kind = TypeVar("Kind", bound=str)


class Faults(Generic[Kind]):
    """Faults of one endpoint; for any thread."""

    def __init__(self, endpoint: str, kinds: Iterable[Kind], clock_ns: Callable[[], int]) -> None:
        self._endpoint = endpoint
        self._throttle = Throttle(clock_ns)
        self._lock = threading.Lock()
        self.counts: dict[str, int] = dict.fromkeys(kinds, 0)
        """All kinds are present from the start."""

    def count(self, kind: Kind, problem: str, number: int = 1) -> None:
        """Count a fault, and log it unless that kind was logged within the last minute."""
        if not number:
            return
        with self._lock:
            self.counts[kind] += number
        if self._throttle.allow(kind):
            logger.warning(
                "%s: %s (%s: %d so far)", self._endpoint, problem, kind, self.counts[kind]
            )
