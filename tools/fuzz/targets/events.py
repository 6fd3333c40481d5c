"""Messages of event streams: those of our wire, and the KV events of other servers."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from kvscope_events.wire.frame import (
    FrameError,
    FrameKind,
    decode_batch,
    pack_header,
    read_frames,
    read_request,
)
from kvscope_exporter.sources.kv_events.decoder import DecodedMessage, Decoder
from tools.fuzz.target import Codec, Parse, Target

_SESSION = b"fuzzed!!"


@contextmanager
def _wire() -> Iterator[Parse]:
    def parse(content: bytes) -> bool:
        read_request(content)
        try:
            for frame in read_frames(content):
                if frame.kind == FrameKind.BATCH:
                    decode_batch(frame.payload)
        except FrameError:
            return False
        return True

    yield parse


def _batch_of(content: bytes) -> object:
    return msgspec.msgpack.decode(next(read_frames(content)).payload)


def _framed(value: object) -> bytes:
    payload = msgspec.msgpack.encode(value)
    return pack_header(FrameKind.BATCH, 0, _SESSION, 1, len(payload)) + payload


@contextmanager
def _kv_events() -> Iterator[Parse]:
    decoder = Decoder()
    yield lambda content: isinstance(decoder.decode(content), DecodedMessage)


_TOKENS = (
    b"\xdc\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
)
WIRE_FRAMES = Target(
    name="wire_frames",
    opened=_wire,
    codec=Codec(decode=_batch_of, encode=_framed),
    tokens=(*_TOKENS, b"KVSF", b"KVSQ"),
)
KV_EVENTS = Target(
    name="kv_events",
    opened=_kv_events,
    codec=Codec(decode=msgspec.msgpack.decode, encode=msgspec.msgpack.encode),
    tokens=_TOKENS,
)
