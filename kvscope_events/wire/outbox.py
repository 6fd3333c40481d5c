"""Packs batches into messages of about MESSAGE_BYTES; none spans a gap in the sequence."""

import logging
from collections.abc import Callable

from kvscope_events.events import Batch
from kvscope_events.wire.codec import encode_batch, flags_of
from kvscope_events.wire.frame import (
    HAS_STATE,
    HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    FrameKind,
    pack_header,
)
from kvscope_events.wire.ring import Ring, Sent

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
