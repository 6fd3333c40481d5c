"""The recent past of a stream as it was sent, bounded by bytes: what a reader can catch up from."""

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

ENTRY_BYTES = 300
"""What an entry takes beside its message."""


class Sent(NamedTuple):
    """One message: batches [first, end) without a hole."""

    first: int
    end: int
    has_state: bool
    message: bytes


class Ring:
    """Drops the oldest messages over `max_bytes`. Sequence numbers only grow, with holes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sent: deque[Sent] = deque()
        self.bytes = 0

    def append(self, sent: Sent) -> None:
        self._sent.append(sent)
        self.bytes += len(sent.message) + ENTRY_BYTES
        while self.bytes > self._max_bytes:
            self.bytes -= len(self._sent.popleft().message) + ENTRY_BYTES

    def replay(self, seq: int, max_bytes: int) -> bytes:
        """Messages in a row from the one that holds `seq`, at least one, about `max_bytes` at most.

        Where `seq` is gone: from the first later one that brings the whole state. Empty: there is
        none.
        """
        sent = self._sent
        index = bisect_right(sent, seq, key=lambda entry: entry.end)
        if index < len(sent) and sent[index].first > seq:
            while index < len(sent) and not sent[index].has_state:
                index += 1
        messages: list[bytes] = []
        size = 0
        while index < len(sent) and (not messages or size + len(sent[index].message) <= max_bytes):
            messages.append(sent[index].message)
            size += len(messages[-1])
            index += 1
        return b"".join(messages)
