"""Facts that the step's thread notes, and the events made of them on the thread that sends them.

To note one costs a fraction of what the event does, since names are cut and numbers of blocks read
later. That is exact: blocks keep their numbers, and nothing changes the lists and hashes in a fact.
Most calls concern one block, which stands for itself: neither it nor the fact is an object that
Python's garbage collector visits, and a list is.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    EngineEvent,
    PrefixLookup,
)
from kvscope_events.names import CONTENT_BYTES, GROUP_BYTES, NAME_BYTES, suffix_of
from kvscope_events.vocabulary import AllocationCause, ReleaseCause, SharingCause, Tier

Blocks = Any
"""Blocks of vLLM's, in a list, or a single one."""
Hashes = Any
"""The hash of each block then, which ends with its group; None: it had no name. A list if the
blocks are one."""

NUMBER_OF = attrgetter("block_id")
_CONTENT = itemgetter(slice(CONTENT_BYTES))
_CUT = itemgetter(slice(NAME_BYTES))
"""A third faster than a loop over `digest[:16]`, which builds the slice each time."""


class Names:
    """Cuts names of 16 bytes from vLLM's hashes; look-ups use those of `lookup_group`.

    vLLM names a block by a digest (16 or 32 bytes) and the group that it belongs to (4 bytes). With
    one group the digest is enough. With several, blocks of two groups have the same digest and
    different content, so the group takes the place of the last four bytes.
    """

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


class Fact(msgspec.Struct, gc=False):
    """Base of all facts."""

    def events(self, names: Names) -> Iterable[EngineEvent]:
        raise NotImplementedError


def finisher(names: Names) -> Callable[[list[Any]], list[EngineEvent]]:
    """A function that replaces facts by their events; events stay as they are."""

    def finish(noted: list[Any]) -> list[EngineEvent]:
        events: list[EngineEvent] = []
        for one in noted:
            if isinstance(one, Fact):
                events += one.events(names)
            else:
                events.append(one)
        return events

    return finish


class HandedOut(Fact, gc=False):
    """Blocks left the queue of free ones, the oldest first, and lost their content."""

    sequence: int | None
    cause: AllocationCause
    blocks: Blocks
    hashes: Hashes | None  # None: nothing was lost
    group: int | None = None  # set later

    def events(self, names: Names) -> Iterable[EngineEvent]:
        numbers = _numbers(self.blocks)
        if self.hashes is not None:
            hashes = listed(self.hashes)
            lost = [n for n, old in zip(numbers, hashes, strict=True) if old is not None]
            old = [old for old in hashes if old is not None]
            yield BlocksEvicted(lost, names.of_blocks(old), "capacity")
        yield BlocksAllocated(self.sequence, numbers, self.cause, self.group)


class SharedBlocks(Fact, gc=False):
    """Each of these blocks has one more reference."""

    sequence: int | None
    cause: SharingCause
    blocks: Blocks
    group: int | None = None  # of a copy: set later

    def events(self, names: Names) -> Iterable[EngineEvent]:
        yield BlocksShared(self.sequence, _numbers(self.blocks), self.cause, self.group)


class NamedBlocks(Fact, gc=False):
    """Blocks of one group got these names; those without one are left out."""

    sequence: int | None
    blocks: Blocks
    hashes: Hashes
    before: bytes | None  # digest of the block in front of them; None: they begin a sequence

    def events(self, names: Names) -> Iterable[EngineEvent]:
        hashes, numbers = listed(self.hashes), _numbers(self.blocks)
        if None in hashes:
            numbers = [n for n, new in zip(numbers, hashes, strict=True) if new is not None]
            hashes = [new for new in hashes if new is not None]
        own = names.of_group(hashes)
        parent = None if self.before is None else names.beside(self.before, own[0])
        yield BlocksCached(self.sequence, numbers, own, parent)


class ReleasedBlocks(Fact, gc=False):
    """References to blocks of one group were given back."""

    sequence: int | None
    cause: ReleaseCause
    blocks: Blocks
    group: int | None
    left: Any  # references that each block still has
    hashes: Hashes

    def events(self, names: Names) -> Iterable[EngineEvent]:
        cached: list[int] = []
        free: list[int] = []
        held: list[int] = []
        parts = (_numbers(self.blocks), listed(self.left), listed(self.hashes))
        for number, left, block_hash in zip(*parts, strict=True):
            fate = held if left else free if block_hash is None else cached
            fate.append(number)
        yield BlocksReleased(self.sequence, cached, free, held, self.cause, self.group)


class LookedUp(Fact, gc=False):
    """A `PrefixLookup` whose names are still digests, without a group."""

    sequence: int
    queried_tokens: int
    digests: list[bytes]
    hit_blocks: int
    resumed: bool
    loaded_tokens: int
    loaded_from: Tier | None
    group_hit_tokens: list[int]

    def events(self, names: Names) -> Iterable[EngineEvent]:
        yield PrefixLookup(
            self.sequence,
            self.queried_tokens,
            names.of_lookup(self.digests),
            self.hit_blocks,
            self.resumed,
            self.loaded_tokens,
            self.loaded_from,
            group_hit_tokens=self.group_hit_tokens,
        )


def _numbers(blocks: Blocks) -> list[int]:
    return list(map(NUMBER_OF, blocks)) if type(blocks) is list else [blocks.block_id]


def listed(of_blocks: Any) -> list[Any]:
    """The values of a fact's blocks as a list, even if there is only one."""
    return of_blocks if type(of_blocks) is list else [of_blocks]


def check_hash(block_hash: object) -> None:
    """Raise ValueError unless a name can be cut from such a hash."""
    if not isinstance(block_hash, bytes) or len(block_hash) < NAME_BYTES + GROUP_BYTES:
        raise ValueError(f"a block hash of an unknown form: {type(block_hash).__name__}")
