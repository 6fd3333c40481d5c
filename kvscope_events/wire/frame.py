"""Frames of the wire: a fixed header, then a batch as MessagePack. A message is frames in a row.

Stream messages begin with a frame, whose magic is their topic; answers to one subscriber begin with
that subscriber's topic. The header's first two fields never change, so that peers can recognise
another contract version.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from kvscope_events.events import CONTRACT_VERSION
from kvscope_events.wire.errors import FrameError

MAGIC = b"KVSF"
"""First bytes of every frame, and the topic of the stream."""
REQUEST_MAGIC = b"KVSQ"
ID_BYTES = 8
"""Length of a session's and of a subscriber's random name."""
MAX_MESSAGE_BYTES = 64 << 20
"""A snapshot of two million blocks fits; ZMQ closes the connection of a peer that sends more."""

HAS_HELLO = 1
"""The batch has a Hello: a session may be read from here on."""
HAS_STATE = 2
"""The batch has the whole state: a reader that lost batches may continue from here."""

_HEADER = Struct("<4sHBB8sQI")
_REQUEST = Struct("<4sHB8s8sQ")
_VERSION = Struct("<4sH")
HEADER_BYTES = _HEADER.size
REQUEST_BYTES = _REQUEST.size


class FrameKind(IntEnum):
    BATCH = 1
    HEARTBEAT = 2  # seq: the one that comes next
    GONE = 3  # answer: the ring no longer holds seq, nor a state after it
    STACKS = 4  # answer: where the threads of the publisher's process are


class RequestKind(IntEnum):
    REPLAY = 1  # all that you hold from seq on
    SNAPSHOT = 2  # the whole state, in one of the next batches
    STACKS = 3  # where the threads of your process are


class Frame(NamedTuple):
    kind: int
    flags: int
    session: bytes
    seq: int
    payload: bytes


class SubscriberRequest(NamedTuple):
    kind: int
    subscriber: bytes
    session: bytes
    seq: int


def answer_topic(subscriber: bytes) -> bytes:
    """The topic of messages to one subscriber alone."""
    return b"R" + subscriber


def pack_header(kind: FrameKind, flags: int, session: bytes, seq: int, length: int) -> bytes:
    """`length` counts the bytes of the payload that follows."""
    return _HEADER.pack(MAGIC, CONTRACT_VERSION, kind, flags, session, seq, length)


def read_frames(message: bytes, offset: int = 0) -> Iterator[Frame]:
    """The frames from `offset` to the end; raises FrameError at the first that is not valid."""
    end = len(message)
    if offset >= end:
        raise FrameError("malformed", "a message without a frame")
    while offset < end:
        if end - offset < HEADER_BYTES:
            _check_version(message, offset)
            raise FrameError("malformed", f"a header cut short at {end - offset} bytes")
        magic, version, kind, flags, session, seq, length = _HEADER.unpack_from(message, offset)
        if magic != MAGIC or version != CONTRACT_VERSION:
            _check_version(message, offset)
        offset += HEADER_BYTES
        if length > MAX_MESSAGE_BYTES:
            raise FrameError("too_large", f"a payload of {length} bytes")
        if length > end - offset:
            raise FrameError("malformed", f"a payload of {length} bytes cut short")
        yield Frame(kind, flags, session, seq, message[offset : offset + length])
        offset += length


def payload_bytes(header: bytes) -> int:
    """Bytes that follow this header; 0 if it is not a header, which `read_frames` reports."""
    if len(header) != HEADER_BYTES:
        return 0
    magic, version, _, _, _, _, length = _HEADER.unpack(header)
    is_ours = magic == MAGIC and version == CONTRACT_VERSION and length <= MAX_MESSAGE_BYTES
    return int(length) if is_ours else 0


def pack_request(kind: RequestKind, subscriber: bytes, session: bytes, seq: int) -> bytes:
    return _REQUEST.pack(REQUEST_MAGIC, CONTRACT_VERSION, kind, subscriber, session, seq)


def read_request(message: bytes) -> SubscriberRequest | None:
    """The request, or None where the bytes are not one; an untrusted peer gets no explanation."""
    if len(message) != REQUEST_BYTES:
        return None
    magic, version, kind, subscriber, session, seq = _REQUEST.unpack(message)
    if magic != REQUEST_MAGIC or version != CONTRACT_VERSION:
        return None
    return SubscriberRequest(kind, subscriber, session, seq)


def _check_version(message: bytes, offset: int) -> None:
    """Check the part of a header that all contracts share; the error names what differs."""
    if len(message) - offset < _VERSION.size:
        raise FrameError("malformed", f"a header cut short at {len(message) - offset} bytes")
    magic, version = _VERSION.unpack_from(message, offset)
    if magic != MAGIC:
        raise FrameError("malformed", f"no frame begins with {magic!r}")
    if version != CONTRACT_VERSION:
        raise FrameError(
            "contract", f"the peer speaks contract {version}, this reader {CONTRACT_VERSION}"
        )
