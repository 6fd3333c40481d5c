"""Chunks of a recording: a fixed header, then records as MessagePack, compressed with zstd.

A segment is chunks in a row, of which the first is marked as its beginning and the last, if the
recorder ended it, as its end. Every segment can be read alone, and a recording is segments in a
row. A chunk is checked by its length and a CRC over header and content before anything in it is
decoded, so a file that was cut is read up to the cut.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import BinaryIO

import zstandard

MAGIC = b"KVSR"
VERSION = 2
BEGINS = 1
"""Flag of a segment's first chunk."""
ENDS = 2
"""Flag of a segment's last chunk; without it, the recorder was cut off."""
MAX_CHUNK_BYTES = 128 << 20
"""Limit for a chunk's records before compression: a snapshot of two million blocks fits."""
_HEADER = Struct("<4sHHIIIqq")
HEADER_BYTES = _HEADER.size
_STATED = Struct("<HIIqq")
"""Flags, both lengths and both times: the part of a header that its CRC covers."""
_LENGTH = Struct("<I")
LENGTH_BYTES = _LENGTH.size
"""Bytes before each record in a chunk, which state its length."""


class RecordingError(Exception):
    """A file that is not a recording, or ends before its end; `str()` says where."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The header of one chunk of a file."""

    offset: int
    """The first byte of its content."""
    flags: int
    first_ns: int
    last_ns: int
    """Both by the recorder's wall clock."""
    raw_bytes: int
    stored_bytes: int
    crc: int

    def is_of(self, stored: bytes) -> bool:
        """Whether this is the content that the header was made for."""
        stated = (self.flags, self.raw_bytes, self.stored_bytes, self.first_ns, self.last_ns)
        return len(stored) == self.stored_bytes and _checksum(*stated, stored) == self.crc

    def records(self, stored: bytes) -> Iterator[bytes]:
        """The encoded records in this content. Raises RecordingError."""
        if not self.is_of(stored):
            raise RecordingError(f"byte {self.offset}: a chunk is damaged")
        try:
            # The library makes room for what the content states of itself, whatever the limit.
            if zstandard.frame_content_size(stored) > self.raw_bytes:
                raise RecordingError(f"byte {self.offset}: a chunk is longer than it states")
            raw = zstandard.ZstdDecompressor().decompress(
                stored, max_output_size=self.raw_bytes, allow_extra_data=False
            )
        except zstandard.ZstdError as error:
            raise RecordingError(f"byte {self.offset}: {error}") from None
        if len(raw) != self.raw_bytes:
            raise RecordingError(f"byte {self.offset}: a chunk has not the length it states")
        at = 0
        while at < len(raw):
            if at + _LENGTH.size > len(raw):
                raise RecordingError(f"byte {self.offset}: a record is cut short")
            (length,) = _LENGTH.unpack_from(raw, at)
            at += _LENGTH.size
            if at + length > len(raw):
                raise RecordingError(f"byte {self.offset}: a record is cut short")
            yield raw[at : at + length]
            at += length


def pack_chunk(records: list[bytes], flags: int, first_ns: int, last_ns: int) -> bytes:
    """A chunk with its header. first_ns, last_ns: of the recorder's wall clock."""
    raw = b"".join([part for each in records for part in (_LENGTH.pack(len(each)), each)])
    stored = zstandard.ZstdCompressor(level=3).compress(raw)
    return pack_header(flags, len(raw), first_ns, last_ns, stored) + stored


def pack_header(flags: int, raw_bytes: int, first_ns: int, last_ns: int, stored: bytes) -> bytes:
    """The header of a chunk with this content."""
    crc = _checksum(flags, raw_bytes, len(stored), first_ns, last_ns, stored)
    return _HEADER.pack(MAGIC, VERSION, flags, raw_bytes, len(stored), crc, first_ns, last_ns)


def _checksum(
    flags: int, raw_bytes: int, stored_bytes: int, first_ns: int, last_ns: int, stored: bytes
) -> int:
    stated = _STATED.pack(flags, raw_bytes, stored_bytes, first_ns, last_ns)
    return zlib.crc32(stored, zlib.crc32(stated))


def read_chunks(file: BinaryIO) -> Iterator[Chunk]:
    """The chunks up to the end of the file. Raises RecordingError at the first that is cut."""
    offset = 0
    size = os.fstat(file.fileno()).st_size
    while header := file.read(HEADER_BYTES):
        if not header.startswith(MAGIC[: len(header)]):
            what = "no recording of kvscope" if offset == 0 else "no chunk begins here"
            raise RecordingError(f"byte {offset}: {what}")
        if len(header) < HEADER_BYTES:
            raise RecordingError(f"byte {offset}: the recording is cut off here")
        _, version, flags, raw, length, crc, first_ns, last_ns = _HEADER.unpack(header)
        if version != VERSION:
            raise RecordingError(
                f"byte {offset}: format {version}, but this kvscope reads format {VERSION}"
            )
        if raw > MAX_CHUNK_BYTES or length > MAX_CHUNK_BYTES:
            raise RecordingError(f"byte {offset}: a chunk of {max(raw, length)} bytes")
        content = offset + HEADER_BYTES
        if content + length > size:
            raise RecordingError(f"byte {offset}: the recording is cut off here")
        yield Chunk(content, flags, first_ns, last_ns, raw, length, crc)
        offset = file.seek(content + length)


def whole_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Each chunk of a segment with its header, up to the first that is cut or damaged.

    Nothing of a file that does not begin as a segment. Raises OSError.
    """
    with suppress(RecordingError):
        for chunk in read_chunks(file):
            begin = chunk.offset - HEADER_BYTES
            file.seek(begin)
            content = file.read(HEADER_BYTES + chunk.stored_bytes)
            is_first = begin == 0
            if (is_first and not chunk.flags & BEGINS) or not chunk.is_of(content[HEADER_BYTES:]):
                return
            yield content
