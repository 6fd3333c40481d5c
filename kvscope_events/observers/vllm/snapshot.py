"""The pool's whole state, read from vLLM's own structures; O(num_blocks).

The idle thread reads it while the engine may wake up, so the walk is bounded, and it gives up as
soon as the caller says that something has changed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kvscope_events.events import PoolCreated, PoolSnapshot
from kvscope_events.observers.vllm.facts import Names
from kvscope_events.observers.vllm.groups import UNKNOWN

SLICE = 4096
"""Blocks read between two checks that the state still holds: about a millisecond."""


class Counts:
    """Running counts of a pool's blocks, without the reserved ones."""

    __slots__ = ("active", "cached", "references")

    def __init__(self, active: int = 0, cached: int = 0, references: int = 0) -> None:
        self.active = active
        self.cached = cached
        self.references = references

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counts) and self.as_tuple() == other.as_tuple()

    __hash__ = None  # type: ignore[assignment]

    def as_tuple(self) -> tuple[int, int, int]:
        return self.active, self.cached, self.references


class State(NamedTuple):
    """The content of a pool at one moment."""

    ref_counts: list[int]
    hashes: list[bytes | None]
    lru: list[int]
    counts: Counts

    def event(
        self, created: PoolCreated, largest_step: int, groups: Sequence[int] | None = None
    ) -> PoolSnapshot:
        """largest_step: in tokens, of all steps since the pool was created; groups: by block."""
        return PoolSnapshot(
            created.num_blocks,
            created.block_size,
            created.bytes_per_block,
            created.reserved,
            self.ref_counts,
            self.hashes,
            self.lru,
            created.memory_terms,
            created.groups,
            largest_step=largest_step,
            size_tokens=created.size_tokens,
            longest_sequences=created.longest_sequences,
            alignment=created.alignment,
            retention=created.retention,
            block_groups=[] if groups is None else self._groups(groups),
            drops_last=created.drops_last,
        )

    def _groups(self, groups: Sequence[int]) -> list[int | None]:
        """By block: what holds nothing, and is held by no one, belongs to no group."""
        return [
            group if (references or name is not None) and group != UNKNOWN else None
            for group, references, name in zip(groups, self.ref_counts, self.hashes, strict=True)
        ]


def read_state(
    pool: Any, names: Names, reserved: int, holds: Callable[[], bool] | None = None
) -> State | None:
    """None: the state changed while it was read."""
    blocks = pool.blocks
    ref_counts: list[int] = []
    hashes: list[bytes | None] = []
    active = 0
    for begin in range(0, len(blocks), SLICE):
        if holds is not None and not holds():
            return None
        part = blocks[begin : begin + SLICE]
        counts = [block.ref_cnt for block in part]
        found = [block.block_hash for block in part]
        cut = iter(names.of_blocks([block_hash for block_hash in found if block_hash is not None]))
        hashes += [None if block_hash is None else next(cut) for block_hash in found]
        ref_counts += counts
    for block in range(reserved):
        ref_counts[block] = 0
        hashes[block] = None
    active = sum(1 for count in ref_counts if count)
    lru: list[int] = []
    block = pool.free_block_queue.fake_free_list_head.next_free_block
    for index in range(len(blocks)):
        if block is None or block.block_id < 0:  # the queue's own end
            break
        if index % SLICE == 0 and holds is not None and not holds():
            return None
        if hashes[block.block_id] is not None:
            lru.append(block.block_id)
        block = block.next_free_block
    if holds is not None and not holds():
        return None
    return State(ref_counts, hashes, lru, Counts(active, len(lru), sum(ref_counts)))
