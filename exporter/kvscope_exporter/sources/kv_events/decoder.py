"""Payloads of KV events to events of the contract: total, for any bytes, and bounded.

A message whose events are all known takes one call of msgspec, which skips tokens unread; only if
that fails are its events read one by one. A known event that cannot be read makes the message
unreadable, since later ones would build on a wrong state; events of an unknown type are left out
and counted.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from kvscope_events.events import EngineEvent, NamesCleared, NamesRemoved, NamesStored
from kvscope_exporter.sources.kv_events.dialects import (
    MAX_HASHES,
    TAGS,
    ArrayEnvelope,
    ArrayEvent,
    ArrayTag,
    ClearedArray,
    ClearedMap,
    MapEnvelope,
    MapEvent,
    MapTag,
    RawEnvelope,
    RemovedArray,
    RemovedMap,
)
from kvscope_exporter.sources.kv_events.naming import name_of, tier_of

ErrorKind = Literal["malformed", "too_large", "unknown_event", "second_publisher"]
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
"""Closed set, a part of the wire's kinds."""

_UNREADABLE = (msgspec.DecodeError, ValueError, OverflowError, RecursionError)
"""Errors that msgspec raises for arbitrary bytes; for text that is not UTF-8 it is a ValueError."""
_LAST_SECOND = 1 << 33
"""Latest wall-clock time; anything later, or before 1970, is not a time."""


class DecodedMessage(NamedTuple):
    """A message that could be read."""

    events: list[EngineEvent]
    unknown: int  # events left out
    wall_ns: int  # 0: not a time
    rank: int | None


class Unreadable(NamedTuple):
    """A message that could not be read."""

    kind: ErrorKind
    problem: str


_decode_maps = msgspec.msgpack.Decoder(MapEnvelope).decode
_decode_arrays = msgspec.msgpack.Decoder(ArrayEnvelope).decode
_decode_raw = msgspec.msgpack.Decoder(RawEnvelope).decode
_decode_map: msgspec.msgpack.Decoder[MapEvent] = msgspec.msgpack.Decoder(MapEvent)
_decode_array: msgspec.msgpack.Decoder[ArrayEvent] = msgspec.msgpack.Decoder(ArrayEvent)
_decode_map_tag = msgspec.msgpack.Decoder(MapTag).decode
_decode_array_tag = msgspec.msgpack.Decoder(ArrayTag).decode


class Decoder:
    """Remembers the encoding of the previous message, which a server never changes."""

    def __init__(self) -> None:
        self._arrays = False

    def decode(self, payload: bytes) -> DecodedMessage | Unreadable:
        """Never raises."""
        try:
            try:
                envelope = (_decode_arrays if self._arrays else _decode_maps)(payload)
            except msgspec.ValidationError:
                try:
                    envelope = (_decode_maps if self._arrays else _decode_arrays)(payload)
                    self._arrays = not self._arrays
                except msgspec.ValidationError:
                    return _one_by_one(payload)
            return _decoded(envelope.time, envelope.events, 0, envelope.rank)
        except _UNREADABLE as error:
            return Unreadable("malformed", f"a message that cannot be read: {error}")


def _one_by_one(payload: bytes) -> DecodedMessage | Unreadable:
    raw = _decode_raw(payload)
    events: list[MapEvent | ArrayEvent] = []
    for event in raw.events:
        is_map = _is_map(event)
        tag = (_decode_map_tag if is_map else _decode_array_tag)(event).type
        if tag in TAGS:
            events.append((_decode_map if is_map else _decode_array).decode(event))
    return _decoded(raw.time, events, len(raw.events) - len(events), raw.rank)


def _is_map(event: msgspec.Raw) -> bool:
    first = memoryview(event)[0]
    return first & 0xF0 == 0x80 or first in (0xDE, 0xDF)


def _decoded(
    time: float, events: Sequence[MapEvent | ArrayEvent], unknown: int, rank: int | None
) -> DecodedMessage | Unreadable:
    hashes = 0
    said: list[EngineEvent] = []
    for event in events:
        # isinstance takes 0.2 µs with these types, which is a tenth of what an event may cost
        if type(event) is ClearedMap or type(event) is ClearedArray:
            said.append(NamesCleared("device"))
            continue
        hashes += len(event.block_hashes)
        if hashes > MAX_HASHES:
            return Unreadable("too_large", f"a message that names over {MAX_HASHES} blocks")
        group, tier, keys = event.group_idx, tier_of(event.medium), event.block_hashes
        names = [name_of(group, keys[0])] if len(keys) == 1 else [name_of(group, k) for k in keys]
        if type(event) is RemovedMap or type(event) is RemovedArray:
            said.append(NamesRemoved(tier, names))
        else:
            parent = event.parent_block_hash
            name = None if parent is None else name_of(group, parent)
            said.append(NamesStored(tier, names, name, event.block_size))
    is_time = math.isfinite(time) and 0 < time < _LAST_SECOND
    return DecodedMessage(said, unknown, int(time * 1e9) if is_time else 0, rank)
