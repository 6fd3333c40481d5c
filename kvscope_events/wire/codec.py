"""Batches to and from MessagePack; events of a newer producer are left out and counted."""

from typing import Annotated

import msgspec

from kvscope_events.events import (
    EVENT_NAMES,
    Batch,
    EngineEvent,
    Hello,
    PoolCreated,
    PoolSnapshot,
)
from kvscope_events.limits import EVENTS, Time
from kvscope_events.wire.errors import FrameError
from kvscope_events.wire.frame import HAS_HELLO, HAS_STATE

_NAMES = frozenset(EVENT_NAMES)
_MARKED = frozenset((Hello, PoolCreated, PoolSnapshot))
_STATES = frozenset((PoolCreated, PoolSnapshot))
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
        if not _STATES.isdisjoint(map(type, batch.events)):
            _check_states(batch)
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


def _check_states(batch: Batch) -> None:
    """A pool that contradicts itself has no ledger; raises ValueError."""
    for event in batch.events:
        if not isinstance(event, PoolCreated | PoolSnapshot):
            continue
        size = event.num_blocks
        if event.reserved > size:
            raise ValueError(f"a pool of {size} blocks with {event.reserved} reserved ones")
        if isinstance(event, PoolSnapshot):
            if not len(event.ref_counts) == len(event.hashes) == size:
                raise ValueError(
                    f"a snapshot of {size} blocks with {len(event.ref_counts)} reference counts "
                    f"and {len(event.hashes)} names"
                )
            if event.block_groups and len(event.block_groups) != size:
                raise ValueError(
                    f"a snapshot of {size} blocks with the groups of {len(event.block_groups)}"
                )
            if event.lru and not 0 <= min(event.lru) <= max(event.lru) < size:
                raise ValueError(f"a snapshot of {size} blocks that orders others by age")
            _check_blocks(event)


def _check_blocks(event: PoolSnapshot) -> None:
    """Reserved blocks hold nothing; those in the LRU are named, unreferenced and there once."""
    ref_counts, hashes, reserved = event.ref_counts, event.hashes, event.reserved
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
