"""What went wrong with one source: counted by kind, logged once per kind and minute."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

LOG_EVERY_NS = 60_000_000_000

Kind = TypeVar("Kind", bound=str)


class Faults(Generic[Kind]):
    """Of one endpoint; for any thread."""

    def __init__(self, endpoint: str, kinds: Iterable[Kind], clock_ns: Callable[[], int]) -> None:
        self._endpoint = endpoint
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._logged_ns: dict[Kind, int] = {}
        self.counts: dict[str, int] = dict.fromkeys(kinds, 0)
        """All kinds are there from the start."""

    def count(self, kind: Kind, problem: str, number: int = 1) -> None:
        """Count it, and say so unless that kind was logged within the last minute."""
        if not number:
            return
        now_ns = self._clock_ns()
        with self._lock:
            self.counts[kind] += number
            logged_ns = self._logged_ns.get(kind)
            is_due = logged_ns is None or now_ns - logged_ns >= LOG_EVERY_NS
            if is_due:
                self._logged_ns[kind] = now_ns
        if is_due:
            logger.warning(
                "%s: %s (%s: %d so far)", self._endpoint, problem, kind, self.counts[kind]
            )
