"""Names and tiers of the contract, from the hashes and media of other servers.

A hash is an identity and nothing more: no server's recipe is assumed.
"""

from kvscope_events.events import BlockHash
from kvscope_events.vocabulary import Tier

HASH_BYTES = 12
"""Of a hash, the low end. vLLM's integers are the low eight bytes of a digest; of a longer hash
twelve bytes are enough, since no two digests of one cache agree in 96 bits."""
MAX_HASH_BYTES = 64
MAX_GROUP = (1 << 32) - 1
_LOW_64_BITS = (1 << 64) - 1

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


def prefix_of(group: int | None) -> bytes:
    """The first four bytes of a group's names: groups hold the same content apart.

    A server that names no group has only one, the first.
    """
    return (group or 0).to_bytes(4, "big")


def name_of(prefix: bytes, hash: int | bytes) -> BlockHash:
    """Sixteen bytes: group and hash. Signed and unsigned spellings of 64 bits agree."""
    if isinstance(hash, int):
        return prefix + (hash & _LOW_64_BITS).to_bytes(HASH_BYTES, "big")
    return prefix + hash[-HASH_BYTES:].rjust(HASH_BYTES, b"\0")


def tier_of(medium: str | None) -> Tier:
    """The tier of a medium, in any case of letters; servers without media have only a device."""
    return "device" if medium is None else _TIERS.get(medium.upper(), "other")
