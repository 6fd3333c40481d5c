"""Packs batches into messages of about MESSAGE_BYTES, and keeps the latest to catch up from."""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kvscope_events.events import Batch
from kvscope_events.wire.frame import (
    HAS_STATE,
    HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    FrameKind,
    encode_batch,
    flags_of,
    pack_header,
)

ENTRY_BYTES = 300
"""Memory of an entry beside its message."""


class Sent(NamedTuple):
    """One message: the batches [first, end) without a gap."""

    first: int
    end: int
    has_state: bool
    message: bytes


class Ring:
    """Drops the oldest messages over `max_bytes`. Sequence numbers grow, but not always by one."""

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


logger = logging.getLogger(__name__)

MESSAGE_BYTES = 256 << 10
"""Size at which a message or an answer ends: copying one holds the interpreter for some 50 µs."""


class Outbox:
    """Collects batches; sends and keeps them in the ring when a message is full, or at `flush`."""

    def __init__(self, session: bytes, ring: Ring, send: Callable[[bytes], None]) -> None:
        self._session = session
        self._ring = ring
        self._send = send
        self._parts: list[bytes] = []
        self._size = 0
        self._first = 0
        self._has_state = False
        self.next_seq = 0
        """The number that follows the last batch added."""

    def add(self, batch: Batch) -> bool:
        """Add a batch; False if it cannot be sent and leaves a gap in the sequence."""
        if batch.seq != self.next_seq:
            self.flush()
        try:
            flags, payload = flags_of(batch), encode_batch(batch)
        except Exception:  # whatever a producer put into an event must not end its publisher
            logger.exception("batch %d cannot be encoded and is left out", batch.seq)
            payload = None
        if payload is not None and HEADER_BYTES + len(payload) > MAX_MESSAGE_BYTES:
            logger.error(
                "batch %d has %d bytes, larger than a message may be, and is left out",
                batch.seq,
                len(payload),
            )
            payload = None
        if payload is None:
            self.flush()
            self.next_seq = batch.seq + 1
            return False
        if self._size + len(payload) > MESSAGE_BYTES:
            self.flush()
        if not self._parts:
            self._first = batch.seq
        header = pack_header(FrameKind.BATCH, flags, self._session, batch.seq, len(payload))
        self._parts += (header, payload)
        self._size += HEADER_BYTES + len(payload)
        self._has_state = self._has_state or bool(flags & HAS_STATE)
        self.next_seq = batch.seq + 1
        return True

    def flush(self) -> None:
        """Send what has been added."""
        if not self._parts:
            return
        message = b"".join(self._parts)
        self._ring.append(Sent(self._first, self.next_seq, self._has_state, message))
        self._parts, self._size, self._has_state = [], 0, False
        self._send(message)
