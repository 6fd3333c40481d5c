"""The latest delivered messages: distinguish a duplicate from another process's message."""

from collections import deque

REMEMBERED = 1024
"""Number of messages; a server that repeats older ones is taken for one that restarted."""


class RecentNumbers:
    """Numbers with a hash of each payload, which holds the time of its step to the microsecond."""

    def __init__(self) -> None:
        self._hashes: dict[int, int] = {}
        self._order: deque[int] = deque()

    def add(self, seq: int, payload: bytes) -> None:
        """Remember a message; numbers grow."""
        self._hashes[seq] = hash(payload)
        self._order.append(seq)
        if len(self._order) > REMEMBERED:
            del self._hashes[self._order.popleft()]

    def is_same(self, seq: int, payload: bytes) -> bool:
        """Whether exactly this message was delivered."""
        return self._hashes.get(seq) == hash(payload)

    def explains(self, seq: int, payload: bytes) -> bool:
        """Whether a number that goes back comes from the same process: repeated, or late."""
        if seq in self._hashes:
            return self.is_same(seq, payload)
        return bool(self._order) and seq > self._order[0]

    def clear(self) -> None:
        """Forget the former process."""
        self._hashes.clear()
        self._order.clear()
