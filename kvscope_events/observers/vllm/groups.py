"""The groups of the blocks of a pool that has several.

vLLM hands a block out before the request has it, so an allocation is reported first and gets its
group afterwards, from the request's own lists, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Any

from kvscope_events.limits import MAX_GROUPS
from kvscope_events.names import GROUP_BYTES
from kvscope_events.observers.vllm.facts import HandedOut, SharedBlocks, listed
from kvscope_events.vocabulary import AllocationCause

UNKNOWN = 255
"""In place of a group: the block was handed out for no request."""
assert MAX_GROUPS <= UNKNOWN


class BlockGroups:
    """The group of each block, from its allocation until the next one."""

    def __init__(self, num_blocks: int) -> None:
        self.of_block: list[int] = [UNKNOWN] * num_blocks
        """A list, which the interpreter indexes twice as fast as bytes."""
        self.request: Any = None
        """The request that blocks were last handed out for."""
        self.owner: tuple[int | None, AllocationCause] = (None, "prefill")
        """Its number, and the cause."""
        self._unplaced: list[tuple[Any, HandedOut | SharedBlocks]] = []

    def __getitem__(self, block: int) -> int | None:
        group = self.of_block[block]
        return None if group == UNKNOWN else group

    def noted(self, request: Any, fact: HandedOut | SharedBlocks) -> None:
        """Blocks were handed out, or a copy has one more reader: the group is known later."""
        if request is not None:
            self._unplaced.append((request, fact))
        else:
            self._put(fact.blocks, UNKNOWN)

    def place(self, manager: Any) -> None:
        """Find the group of what was handed out, while its request still has it."""
        unplaced, self._unplaced, self.request = self._unplaced, [], None
        request, newest = None, {}
        left: list[tuple[Any, HandedOut | SharedBlocks]] = []
        for owner, fact in unplaced:
            if owner is not request:
                request = owner
                held = manager.coordinator.get_blocks(owner.request_id)
                newest = {own[-1].block_id: group for group, own in enumerate(held) if own}
            blocks = fact.blocks
            # Blocks of one call are of one group, nearly always the newest there.
            last = blocks[-1] if type(blocks) is list else blocks
            group = newest.get(last.block_id)
            if group is None or type(fact) is SharedBlocks:
                left.append((owner, fact))
                continue
            fact.group = group
            self._put(blocks, group)
        if left:
            self._search(manager, left)

    def _put(self, blocks: Any, group: int) -> None:
        of_block = self.of_block
        if type(blocks) is list:
            for block in blocks:
                of_block[block.block_id] = group
        else:
            of_block[blocks.block_id] = group

    def _search(self, manager: Any, left: list[tuple[Any, HandedOut | SharedBlocks]]) -> None:
        """Place what lies behind other blocks of its request, or is a copy."""
        wanted: dict[str, dict[int, Any]] = {}
        for owner, fact in left:
            if type(fact) is HandedOut:
                self._put(fact.blocks, UNKNOWN)
                own = wanted.setdefault(owner.request_id, {})
                own |= {block.block_id: block for block in listed(fact.blocks)}
        for request_id, blocks in wanted.items():
            if self._find(manager.coordinator.get_blocks(request_id), blocks.keys()):
                continue
            for number, block in blocks.items():  # only the cache holds it: its name says the group
                if self.of_block[number] == UNKNOWN and block.block_hash is not None:
                    self.of_block[number] = _group_of(block.block_hash)
        for _, fact in left:
            fact.group = self[listed(fact.blocks)[0].block_id]

    def find_all(self, blocks: Iterable[Any], manager: Any, request_ids: Iterable[str]) -> None:
        """Find the groups of a whole pool, whose blocks were handed out before we came."""
        for block in blocks:
            if block.block_hash is not None:
                self.of_block[block.block_id] = _group_of(block.block_hash)
        for request_id in request_ids:
            for group, held in enumerate(manager.coordinator.get_blocks(request_id)):
                for block in held:
                    self.of_block[block.block_id] = group

    @property
    def has_unplaced(self) -> bool:
        return bool(self._unplaced)

    def touched(self, blocks: list[Any]) -> Iterable[tuple[int | None, list[Any]]]:
        """Cached blocks, whose names say their group: each group and its blocks, in their order."""
        of_block = self.of_block
        if UNKNOWN in {of_block[block.block_id] for block in blocks}:  # handed out for no request
            for block in blocks:
                if of_block[block.block_id] == UNKNOWN and block.block_hash is not None:
                    of_block[block.block_id] = _group_of(block.block_hash)
        return self.parts(blocks)

    def parts(self, blocks: list[Any]) -> Iterable[tuple[int | None, list[Any]]]:
        """Consecutive blocks of one group, and which it is."""
        of_block = self.of_block
        if len({of_block[block.block_id] for block in blocks}) == 1:  # as in nearly every call
            return ((self[blocks[0].block_id], blocks),)
        runs = groupby(blocks, lambda block: self[block.block_id])
        return [(group, list(run)) for group, run in runs]

    def _find(self, held: Sequence[Sequence[Any]], wanted: Collection[int]) -> bool:
        """New blocks of a request come behind all others that it has in a group, but for holes."""
        left = len(wanted)
        for group, blocks in enumerate(held):
            for block in reversed(blocks):
                if block.block_id in wanted:
                    self.of_block[block.block_id] = group
                    left -= 1
                elif not block.is_null:
                    break
            if left <= 0:
                return True
        return False


def _group_of(block_hash: bytes) -> int:
    group = int.from_bytes(block_hash[-GROUP_BYTES:], "big")
    return group if group < MAX_GROUPS else UNKNOWN
