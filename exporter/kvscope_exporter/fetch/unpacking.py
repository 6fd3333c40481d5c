"""Unpacks an answer piece by piece, never more of it than there is room for."""

import zlib
from typing import Protocol

from kvscope_exporter.fetch.error import FetchError


class Unpack(Protocol):
    @property
    def is_complete(self) -> bool:
        """Whether the data ended where its encoding ends."""
        ...

    def __call__(self, chunk: bytes, room: int) -> bytes:
        """At most `room` bytes. Raises FetchError or zlib.error."""
        ...


def unpacker(encoding: str) -> Unpack:
    """An unpacker for a Content-Encoding. Raises FetchError for one that was not requested."""
    if encoding in ("", "identity"):
        return _Plain()
    if encoding in ("gzip", "x-gzip"):
        return _Gzip()
    raise FetchError("encoding", f"is encoded as {encoding[:40]!r}, which was not requested")


class _Plain:
    is_complete = True

    def __call__(self, chunk: bytes, room: int) -> bytes:
        return chunk[:room]


class _Gzip:
    """Unpacks no more than there is room for, so that a small answer cannot fill the memory."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    @property
    def is_complete(self) -> bool:
        return self._stream.eof and not self._stream.unused_data

    def __call__(self, chunk: bytes, room: int) -> bytes:
        if self._stream.eof:
            raise FetchError("encoding", "goes on after the end of its compressed data")
        return self._stream.decompress(chunk, room)
