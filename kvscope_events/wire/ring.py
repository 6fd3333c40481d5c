"""The latest messages of a stream, kept for readers that missed some."""

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

ENTRY_BYTES = 300
"""Memory of a message that is kept for replay, beside the message itself."""


class SentMessage(NamedTuple):
    """One message: the batches [first, end) without a gap."""

    first: int
    end: int
    has_state: bool
    message: bytes


class Ring:
    """The latest messages of a stream, kept for readers that missed some.

    Drops the oldest ones over `max_bytes`, and keeps no message that is larger. Sequence numbers
    grow, but not always by one.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sent: deque[SentMessage] = deque()
        self.bytes = 0

    def append(self, sent: SentMessage) -> None:
        size = len(sent.message) + ENTRY_BYTES
        if size > self._max_bytes:
            return
        self._sent.append(sent)
        self.bytes += size
        while self.bytes > self._max_bytes:
            self.bytes -= len(self._sent.popleft().message) + ENTRY_BYTES

    def replay(self, seq: int, max_bytes: int) -> bytes:
        """Consecutive messages from the one that holds `seq` on: at least one, about `max_bytes`.

        Where `seq` is gone, they begin with the first later one that has the whole state; without
        one the list is empty.
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
