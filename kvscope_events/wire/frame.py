"""Frames of the wire: a fixed header, then a batch as MessagePack. A message is frames in a row.

The header's first two fields never change, so that peers can recognise another contract version.
Events of a newer producer are left out and counted.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec

from kvscope_events.events import (
    CONTRACT_VERSION,
    EVENT_NAMES,
    Batch,
    EngineEvent,
    Hello,
    PoolCreated,
    PoolSnapshot,
)
from kvscope_events.limits import EVENTS, Time

MAGIC = b"KVSF"
"""First bytes of every frame."""
REQUEST_MAGIC = b"KVSQ"
ID_BYTES = 8
"""Length of a session's random name."""
MAX_MESSAGE_BYTES = 128 << 20
"""A snapshot of the largest pool fits, with 24 to 30 bytes a block; a reader closes its connection
to a peer that sends more.
"""

HAS_HELLO = 1
"""The batch has a Hello: a session may be read from here on."""
HAS_STATE = 2
"""The batch has the whole state: a reader that lost batches may continue from here."""

_HEADER = Struct("<4sHBB8sQI")
_REQUEST = Struct("<4sHB8sQ")
_VERSION = Struct("<4sH")
HEADER_BYTES = _HEADER.size
REQUEST_BYTES = _REQUEST.size


DecodeErrorKind = Literal["malformed", "too_large", "contract", "unknown_event", "second_publisher"]

DECODE_ERROR_KINDS: tuple[str, ...] = get_args(DecodeErrorKind)
"""Closed set: malformed (not a frame, or one cut short), too_large, contract (another version),
unknown_event (of a newer producer, left out), second_publisher (frames of a session that ended).
"""


class FrameError(Exception):
    """Bytes that are not a frame of this contract."""

    def __init__(self, kind: DecodeErrorKind, problem: str) -> None:
        super().__init__(problem)
        self.kind: DecodeErrorKind = kind
        self.problem = problem


class FrameKind(IntEnum):
    BATCH = 1
    HEARTBEAT = 2  # seq: the one that comes next
    GONE = 3  # answer: the ring no longer holds seq, nor a state after it
    STACKS = 4  # answer: where the threads of the publisher's process are
    SWITCHED = 5  # answer to OFF and ON: whether it observes; empty: it cannot be switched


class RequestKind(IntEnum):
    JOIN = 0  # here is a reader: tell it soon that you are there
    REPLAY = 1  # all that you hold from seq on
    SNAPSHOT = 2  # the whole state, in one of the next batches
    STACKS = 3  # where the threads of your process are
    OFF = 4  # stop observing, after the step under way
    ON = 5  # go on observing, before the next step


class Frame(NamedTuple):
    kind: int
    flags: int
    session: bytes
    seq: int
    payload: bytes


class ReaderRequest(NamedTuple):
    kind: int
    session: bytes
    seq: int


def pack_header(kind: FrameKind, flags: int, session: bytes, seq: int, length: int) -> bytes:
    """`length` counts the bytes of the payload that follows."""
    return _HEADER.pack(MAGIC, CONTRACT_VERSION, kind, flags, session, seq, length)


def read_frames(message: bytes) -> Iterator[Frame]:
    """The frames of a message; raises FrameError at the first that is not valid."""
    offset, end = 0, len(message)
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


def pack_request(kind: RequestKind, session: bytes, seq: int) -> bytes:
    return _REQUEST.pack(REQUEST_MAGIC, CONTRACT_VERSION, kind, session, seq)


def read_request(message: bytes) -> ReaderRequest | None:
    """The request, or None where the bytes are not one; an untrusted peer gets no explanation."""
    if len(message) != REQUEST_BYTES:
        return None
    magic, version, kind, session, seq = _REQUEST.unpack(message)
    if magic != REQUEST_MAGIC or version != CONTRACT_VERSION:
        return None
    return ReaderRequest(kind, session, seq)


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


_NAMES = frozenset(EVENT_NAMES)
_MARKED = frozenset((Hello, PoolCreated, PoolSnapshot))
_POOL_EVENTS = frozenset(("PoolCreated", "PoolSnapshot"))
_UNKNOWN_WORD = "Invalid enum value"
"""Beginning of msgspec's message about a word that a vocabulary lacks."""
_UNREADABLE = (msgspec.DecodeError, ValueError, OverflowError, RecursionError)
"""Errors that msgspec raises for arbitrary bytes; for text that is not UTF-8 it is a ValueError."""


class _RawBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch whose events are still to be read, one by one; its times have the same bounds."""

    seq: int
    time_ns: Time
    events: Annotated[list[msgspec.Raw], EVENTS]
    wall_ns: Time = 0
    arrived_ns: int = 0


encode_batch = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Batch).decode
_decode_raw = msgspec.msgpack.Decoder(_RawBatch).decode
_decode_event: msgspec.msgpack.Decoder[EngineEvent] = msgspec.msgpack.Decoder(EngineEvent)
_decode_tag: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(list[msgspec.Raw])
_decode_name = msgspec.msgpack.Decoder(str).decode


def flags_of(batch: Batch) -> int:
    """Header flags: whether a reader may start from this batch, known without decoding it.

    The Hello of a producer without a pool is its whole state.
    """
    if _MARKED.isdisjoint(map(type, batch.events)):
        return 0
    flags = 0
    for event in batch.events:
        if isinstance(event, Hello):
            flags |= HAS_HELLO
            if _POOL_EVENTS.isdisjoint(event.tells):
                flags |= HAS_STATE
        elif type(event) in _MARKED:
            flags |= HAS_STATE
    return flags


def decode_batch(payload: bytes) -> tuple[Batch, int]:
    """The batch, and how many events of it are unknown here; raises FrameError."""
    try:
        try:
            batch, unknown = _decode(payload), 0
        except msgspec.ValidationError:
            batch, unknown = _decode_known(payload)
        for event in batch.events:
            if type(event) is PoolSnapshot:
                _check_blocks(event)
    except _UNREADABLE as error:
        raise FrameError("malformed", f"a batch that cannot be read: {error}") from error
    return batch, unknown


def _decode_known(payload: bytes) -> tuple[Batch, int]:
    raw = _decode_raw(payload)
    events: list[EngineEvent] = []
    for event in raw.events:
        if not _is_known(event):
            continue
        try:
            events.append(_decode_event.decode(event))
        except msgspec.ValidationError as error:
            if not str(error).startswith(_UNKNOWN_WORD):
                raise
    batch = Batch(raw.seq, raw.time_ns, events, raw.wall_ns, raw.arrived_ns)
    return batch, len(raw.events) - len(events)


def _check_blocks(event: PoolSnapshot) -> None:
    """Reserved blocks hold nothing; those in the LRU are named, unreferenced and there once. A pool
    that contradicts itself has no ledger; raises ValueError."""
    ref_counts, hashes, reserved = event.ref_counts, event.hashes, event.reserved
    size = event.num_blocks
    if not len(ref_counts) == len(hashes) == size:
        raise ValueError(
            f"a snapshot of {size} blocks with {len(ref_counts)} reference counts "
            f"and {len(hashes)} names"
        )
    if event.block_groups and len(event.block_groups) != size:
        raise ValueError(
            f"a snapshot of {size} blocks with the groups of {len(event.block_groups)}"
        )
    if event.lru and not 0 <= min(event.lru) <= max(event.lru) < size:
        raise ValueError(f"a snapshot of {size} blocks that orders others by age")
    if any(ref_counts[:reserved]) or any(name is not None for name in hashes[:reserved]):
        raise ValueError("a snapshot with reserved blocks in use")
    if len(set(event.lru)) != len(event.lru):
        raise ValueError("a snapshot with a block twice in the LRU")
    if any(ref_counts[block] or hashes[block] is None for block in event.lru):
        raise ValueError("a snapshot with a referenced or empty block in the LRU")


def _is_known(event: msgspec.Raw) -> bool:
    fields = _decode_tag.decode(event)
    if not fields:
        raise msgspec.ValidationError("an event without a name")
    return _decode_name(fields[0]) in _NAMES
