"""Values of counters at multiples of a slot, for as long as they may be queried."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Slots(Generic[T]):
    """At most `keep_ns / slot_ns` moments and one more; times are on one clock."""

    def __init__(self, slot_ns: int, keep_ns: int) -> None:
        self._slot_ns = slot_ns
        self._keep_ns = keep_ns
        self._moments: deque[tuple[int, T]] = deque()
        self._next_ns: int | None = None

    def before_change(self, time_ns: int, read: Callable[[], T]) -> None:
        """Call before a counter changes; `read` is called for the first change in a slot."""
        if self._next_ns is not None and time_ns < self._next_ns:
            return
        start_ns = time_ns // self._slot_ns * self._slot_ns
        self._next_ns = start_ns + self._slot_ns
        self._moments.append((start_ns, read()))
        while self._moments[0][0] < time_ns - self._keep_ns:
            self._moments.popleft()

    def since(self, time_ns: int) -> T | None:
        """The value read at `time_ns`, the beginning of a slot; None: no change since then."""
        return next((value for at_ns, value in self._moments if at_ns >= time_ns), None)
