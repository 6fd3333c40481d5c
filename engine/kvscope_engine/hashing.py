"""Content names of full blocks: a running SHA-256 over token ids, cut to 16 bytes at every block.

    name of block i = SHA-256(seed, tokens of blocks 0..i)[:16]      seed = H(model, adapter, salt)

Equal names mean equal tokens from the first one on, under the same model, adapter and salt; names
agree between processes. A running digest costs two thirds of hashing (parent's name, tokens) for
each block.
"""

import struct
from collections.abc import Sequence
from hashlib import sha256

from kvscope_events.events import BlockHash

DIGEST_BYTES = 16
"""128 bits: two different prefixes collide once in 2**64 blocks."""


def chain_seed(model: str, adapter: str = "", salt: str = "") -> BlockHash:
    """The seed of a sequence's names; length prefixes keep the three parts apart."""
    parts = [part.encode() for part in (model, adapter, salt)]
    return sha256(b"".join(struct.pack("<I", len(p)) + p for p in parts)).digest()[:DIGEST_BYTES]


class PrefixHasher:
    """Names the leading full blocks of one growing sequence, on demand."""

    __slots__ = ("_block_size", "_running", "names")

    def __init__(self, seed: BlockHash, block_size: int) -> None:
        self._running = sha256(seed)
        self._block_size = block_size
        self.names: list[BlockHash] = []

    def copy(self) -> "PrefixHasher":
        """A copy that has named the same blocks and continues independently."""
        other = PrefixHasher.__new__(PrefixHasher)
        other._running = self._running.copy()
        other._block_size = self._block_size
        other.names = self.names.copy()
        return other

    def extend(self, tokens: Sequence[int], count: int) -> list[BlockHash]:
        """Name the first `count` blocks of `tokens` and return all names so far.

        `tokens` must begin with those of the last call.

        Token ids are in [0, 2**32), struct.error otherwise; at least count * block_size of them.
        """
        done = len(self.names)
        if done < count:
            window = tokens[done * self._block_size : count * self._block_size]
            packed = struct.pack(f"<{len(window)}I", *window)
            update, digest = self._running.update, self._running.digest
            stride = 4 * self._block_size
            for at in range(0, len(packed), stride):
                update(packed[at : at + stride])
                self.names.append(digest()[:DIGEST_BYTES])
        return self.names
