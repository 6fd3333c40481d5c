"""Compressed pages of a server, unpacked piece by piece."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from kvscope_exporter.fetch.error import FetchError
from kvscope_exporter.fetch.unpacking import unpacker
from tools.fuzz.target import Parse, Target

_PORTION = 100
_ROOM = 1 << 20
"""For what an answer unpacks to."""


@contextmanager
def _unpacked() -> Iterator[Parse]:
    def parse(content: bytes) -> bool:
        unpack = unpacker("gzip")
        room = _ROOM
        try:
            for start in range(0, len(content), _PORTION):
                room -= len(unpack(content[start : start + _PORTION], room))
                assert room >= 0, "more than there is room for"
                if not room:
                    return False
        except (FetchError, zlib.error):
            return False
        return unpack.is_complete

    yield parse


COMPRESSED_ANSWERS = Target(name="compressed_answers", opened=_unpacked)
