"""Names and tiers of the contract, from the hashes and media of other servers.

A hash is only an identity: no server's way of computing it is assumed.
"""

import struct
from functools import lru_cache

from kvscope_events.events import BlockHash
from kvscope_events.vocabulary import Tier

HASH_BYTES = 12
"""Bytes used of a hash, from its low end. vLLM's integers are the low eight bytes of a digest; of a
longer hash twelve bytes are enough, since no two digests of one cache agree in 96 bits."""
MAX_HASH_BYTES = 64
MAX_GROUP = (1 << 32) - 1
_LOW_64_BITS = (1 << 64) - 1
_pack = struct.Struct(">IIQ").pack

_TIERS: dict[str, Tier] = {
    "GPU": "device",
    "CPU": "host",
    "CPU_PINNED": "host",
    "DISK": "disk",
    "FS": "disk",
    "STORAGE": "remote",
    "OBJ": "remote",
    "EXTERNAL": "remote",
}


def name_of(group: int | None, hash: int | bytes) -> BlockHash:
    """Sixteen bytes: the group, since groups hold the same content apart, and the hash.

    Signed and unsigned spellings of 64 bits agree. A server without groups counts as having one,
    the first.
    """
    if isinstance(hash, int):
        return _pack(group or 0, 0, hash & _LOW_64_BITS)
    return (group or 0).to_bytes(4, "big") + hash[-HASH_BYTES:].rjust(HASH_BYTES, b"\0")


@lru_cache(maxsize=64)
def tier_of(medium: str | None) -> Tier:
    """The tier of a medium, in any case of letters; servers without media have only a device."""
    return "device" if medium is None else _TIERS.get(medium.upper(), "other")
