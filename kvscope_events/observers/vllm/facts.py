"""Facts that the step's thread notes, and the events made of them on the thread that sends them.

A fact is a list: a function of this module and its arguments. To note one costs a fraction of what
the event does, since names are cut and numbers of blocks read later. That is exact: blocks keep
their numbers, and the lists and hashes in a fact are copies, which nothing changes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    EngineEvent,
    PrefixLookup,
)
from kvscope_events.observers.vllm.names import NUMBER_OF, Names
from kvscope_events.vocabulary import AllocationCause, ReleaseCause, SharingCause, Tier

Fact = list[Any]
Blocks = list[Any]
"""Blocks of vLLM's."""
Hashes = list[bytes | None]
"""A block's hash ends with its group; None: the block has no name."""
BLOCKS, GROUP = 3, 4
"""Places in a fact that begins with `handed_out` or `shared`; the group becomes known later."""


def finisher(names: Names) -> Callable[[list[Any]], list[EngineEvent]]:
    """A function that replaces facts by their events; events stay as they are."""

    def finish(noted: list[Any]) -> list[EngineEvent]:
        events: list[EngineEvent] = []
        for one in noted:
            if type(one) is list:
                make, *arguments = one
                events += make(names, *arguments)
            else:
                events.append(one)
        return events

    return finish


def handed_out(
    names: Names,
    sequence: int | None,
    cause: AllocationCause,
    blocks: Blocks,
    group: int | None,
    hashes: Hashes | None,
) -> Iterator[EngineEvent]:
    """hashes: the names that the blocks lost, oldest first; None: they had none."""
    numbers = list(map(NUMBER_OF, blocks))
    if hashes is not None:
        lost, old = numbers, hashes
        if None in hashes:
            pairs = zip(numbers, hashes, strict=True)
            lost = [number for number, block_hash in pairs if block_hash is not None]
            old = [block_hash for block_hash in hashes if block_hash is not None]
        yield BlocksEvicted(lost, names.of_blocks(old), "capacity")  # type: ignore[arg-type]
    yield BlocksAllocated(sequence, numbers, cause, group)


def shared(
    names: Names, sequence: int | None, cause: SharingCause, blocks: Blocks, group: int | None
) -> Iterable[EngineEvent]:
    return (BlocksShared(sequence, list(map(NUMBER_OF, blocks)), cause, group),)


def named(
    names: Names, sequence: int | None, blocks: Blocks, hashes: Hashes, before: bytes | None
) -> Iterable[EngineEvent]:
    """before: the digest of the block in front of them; None: they begin a sequence."""
    if None in hashes:
        blocks = [b for b, block_hash in zip(blocks, hashes, strict=True) if block_hash is not None]
        hashes = [block_hash for block_hash in hashes if block_hash is not None]
    own = names.of_group(hashes)  # type: ignore[arg-type]
    parent = None if before is None else names.beside(before, own[0])
    return (BlocksCached(sequence, list(map(NUMBER_OF, blocks)), own, parent),)


def released(
    names: Names,
    sequence: int | None,
    cause: ReleaseCause,
    blocks: Blocks,
    group: int | None,
    references: list[int],
    hashes: Hashes,
) -> Iterable[EngineEvent]:
    """references: what each block has left."""
    cached: list[int] = []
    free: list[int] = []
    held: list[int] = []
    for block, left, block_hash in zip(blocks, references, hashes, strict=True):
        fate = held if left else free if block_hash is None else cached
        fate.append(block.block_id)
    return (BlocksReleased(sequence, cached, free, held, cause, group),)


def looked_up(
    names: Names,
    sequence: int,
    queried_tokens: int,
    digests: list[bytes],
    hit_blocks: int,
    resumed: bool,
    loaded_tokens: int,
    loaded_from: Tier | None,
    group_hit_tokens: list[int],
) -> Iterable[EngineEvent]:
    return (
        PrefixLookup(
            sequence,
            queried_tokens,
            names.of_lookup(digests),
            hit_blocks,
            resumed,
            loaded_tokens,
            loaded_from,
            group_hit_tokens=group_hit_tokens,
        ),
    )
