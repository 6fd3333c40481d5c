"""Names of blocks in 16 bytes, cut from vLLM's hashes.

vLLM names a block by a digest (16 or 32 bytes) and the group that it belongs to (4 bytes). With one
group the digest is enough. With several, blocks of two groups have the same digest and different
content, so the group takes the place of the last four bytes.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter

from kvscope_events.names import CONTENT_BYTES, GROUP_BYTES, NAME_BYTES, suffix_of

NUMBER_OF = attrgetter("block_id")
_CONTENT = itemgetter(slice(CONTENT_BYTES))
_CUT = itemgetter(slice(NAME_BYTES))
"""A third faster than a loop over `digest[:16]`, which builds the slice each time."""


class Names:
    """Cuts names for a pool with `groups` groups; look-ups use those of `lookup_group`."""

    def __init__(self, groups: int, lookup_group: int = 0) -> None:
        self._single = groups <= 1
        self._suffix = suffix_of(lookup_group)

    def of_block(self, block_hash: bytes) -> bytes:
        """Name of a block, whose hash ends with its group."""
        return self.of_blocks((block_hash,))[0]

    def of_blocks(self, block_hashes: Iterable[bytes]) -> list[bytes]:
        """Names of blocks, whose hashes end with their group."""
        if self._single:
            return list(map(_CUT, block_hashes))
        content, group = slice(CONTENT_BYTES), slice(-GROUP_BYTES, None)
        return [block_hash[content] + block_hash[group] for block_hash in block_hashes]

    def of_group(self, block_hashes: Sequence[bytes]) -> list[bytes]:
        """Names of blocks of one group, at least one."""
        if self._single:
            return list(map(_CUT, block_hashes))
        suffix = block_hashes[0][-GROUP_BYTES:]
        return [content + suffix for content in map(_CONTENT, block_hashes)]

    def of_lookup(self, digests: Iterable[bytes]) -> list[bytes]:
        """Names of the content that a request asks for; its digests have no group."""
        if self._single:
            return list(map(_CUT, digests))
        suffix = self._suffix
        return [content + suffix for content in map(_CONTENT, digests)]

    def of_content(self, digest: bytes, group: int) -> bytes:
        """Name that a block of this group has or would have."""
        if self._single:
            return digest[:NAME_BYTES]
        return digest[:CONTENT_BYTES] + suffix_of(group)

    def beside(self, digest: bytes, name: bytes) -> bytes:
        """Name that other content has in the group of this name."""
        if self._single:
            return digest[:NAME_BYTES]
        return digest[:CONTENT_BYTES] + name[CONTENT_BYTES:]


def check_hash(block_hash: object) -> None:
    """Raise ValueError unless a name can be cut from such a hash."""
    if not isinstance(block_hash, bytes) or len(block_hash) < NAME_BYTES + GROUP_BYTES:
        raise ValueError(f"a block hash of an unknown form: {type(block_hash).__name__}")
