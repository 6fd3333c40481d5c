"""Messages on a byte stream: a prefix with kind and length, then frames in a row.

    prefix  magic 4 | kind 1 | length 4, little-endian
    body    `length` bytes: frames, as `frame` reads them

A reader sends requests of one fixed length, without a prefix.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from kvscope_events.wire.frame import MAX_MESSAGE_BYTES, FrameError

PREFIX_MAGIC = b"KVSM"
_PREFIX = Struct("<4sBI")
PREFIX_BYTES = _PREFIX.size
BUFFER_BYTES = 256 << 10
"""Bytes read at once; the buffer grows with what has come, never with what a peer announces."""


class MessageKind(IntEnum):
    STREAM = 1  # to all readers
    ANSWER = 2  # to the reader that asked


class Message(NamedTuple):
    kind: int
    body: bytes


def prefix(kind: MessageKind, length: int) -> bytes:
    """The bytes before a body of this length."""
    return _PREFIX.pack(PREFIX_MAGIC, kind, length)


class Inbox:
    """Cuts received bytes into messages: fill `space`, say how much with `fill`, then `take`."""

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray(BUFFER_BYTES)
        self._start = 0  # [start, end) is received and not yet taken
        self._end = 0

    def space(self) -> memoryview:
        """Room for the next bytes; never empty. Release it before `fill`."""
        if self._start:
            rest = self._buffer[self._start : self._end]
            if not rest and len(self._buffer) > BUFFER_BYTES:
                self._buffer = bytearray(BUFFER_BYTES)
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        if self._end == len(self._buffer):
            self._buffer.extend(bytes(len(self._buffer)))
        return memoryview(self._buffer)[self._end :]

    def fill(self, count: int) -> None:
        """That many bytes have been written to `space`."""
        self._end += count

    def take(self) -> Message | None:
        """The next complete message; None: more bytes are needed. Raises FrameError."""
        if self._end - self._start < PREFIX_BYTES:
            self._check_beginning()
            return None
        magic, kind, length = _PREFIX.unpack_from(self._buffer, self._start)
        if magic != PREFIX_MAGIC:
            self._check_beginning()
        if length > self._max_bytes:
            raise FrameError("too_large", f"the peer sent a message of {length} bytes")
        body = self._start + PREFIX_BYTES
        if self._end < body + length:
            return None
        self._start = body + length
        with memoryview(self._buffer) as view:
            return Message(kind, bytes(view[body : self._start]))

    def _check_beginning(self) -> None:
        """Raises FrameError if what has come is not the beginning of a prefix."""
        beginning = bytes(self._buffer[self._start : min(self._end, self._start + 4)])
        if not PREFIX_MAGIC.startswith(beginning):
            raise FrameError("malformed", "the peer is not a publisher")
