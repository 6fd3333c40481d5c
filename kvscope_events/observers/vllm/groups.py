"""Groups of a pool that has several: whose blocks are whose, and what each group alone would hit.

vLLM hands a block out before the request has it, so an allocation is reported first and gets its
group afterwards, from the request's own lists, before anything is sent.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import force_setattr

from kvscope_events.events import BlocksAllocated, BlocksShared
from kvscope_events.limits import MAX_GROUPS
from kvscope_events.names import GROUP_BYTES
from kvscope_events.observers.log import warn
from kvscope_events.observers.vllm.names import NUMBER_OF

UNKNOWN = 255
"""In place of a group: the block was handed out for no request."""
assert MAX_GROUPS <= UNKNOWN
NOTHING: Sequence[Sequence[Any]] = ()
_PER_GROUP = "find_longest_cache_hit_per_group"
_PARAMETERS = ("self", "block_hashes", "max_cache_hit_length")


class BlockGroups:
    """The group of each block, from its allocation until the next one."""

    def __init__(self, num_blocks: int) -> None:
        self.of_block = bytearray([UNKNOWN]) * num_blocks
        self._unplaced: list[tuple[str, BlocksAllocated | BlocksShared]] = []

    def __getitem__(self, block: int) -> int | None:
        group = self.of_block[block]
        return None if group == UNKNOWN else group

    def allocated(self, request: Any, event: BlocksAllocated) -> None:
        """These blocks were handed out, for a group that is known later."""
        if request is not None:
            self._unplaced.append((request.request_id, event))
            return
        for block in event.blocks:
            self.of_block[block] = UNKNOWN

    def copied(self, request: Any, event: BlocksShared) -> None:
        """A reference to a block that may have been handed out in the same call."""
        if request is not None:
            self._unplaced.append((request.request_id, event))

    def place(self, manager: Any) -> None:
        """Find the group of what was handed out, while its request still has it."""
        unplaced, self._unplaced = self._unplaced, []
        wanted: dict[str, set[int]] = {}
        left: list[BlocksAllocated | BlocksShared] = []
        request_id, held = "", NOTHING
        for owner, event in unplaced:
            if isinstance(event, BlocksShared):
                left.append(event)
                continue
            if owner != request_id:
                request_id, held = owner, manager.get_blocks(owner).blocks
            group = self._place_at_end(held, event.blocks)
            if group == UNKNOWN:
                wanted.setdefault(owner, set()).update(event.blocks)
                left.append(event)
            else:
                force_setattr(event, "group", group)
        for owner, blocks in wanted.items():
            if self._find(manager.get_blocks(owner).blocks, blocks):
                continue
            for block in blocks:  # a copy that only the cache holds: its name says the group
                block_hash = manager.block_pool.blocks[block].block_hash
                if self.of_block[block] == UNKNOWN and block_hash is not None:
                    self.of_block[block] = _group_of(block_hash)
        for event in left:
            force_setattr(event, "group", self[event.blocks[0]])

    @property
    def has_unplaced(self) -> bool:
        return bool(self._unplaced)

    def touched(self, blocks: Sequence[Any]) -> Iterator[tuple[int | None, list[int]]]:
        """Cached blocks, whose names say their group: each group and its blocks, in their order."""
        of_block, numbers = self.of_block, list(map(NUMBER_OF, blocks))
        if UNKNOWN in map(of_block.__getitem__, numbers):  # handed out before we came
            for block in blocks:
                if block.block_hash is not None:
                    of_block[block.block_id] = _group_of(block.block_hash)
        return self.parts(numbers)

    def parts(self, blocks: Sequence[int]) -> Iterator[tuple[int | None, list[int]]]:
        """Consecutive blocks of one group, and which it is."""
        begin, of_block = 0, self.of_block
        if len(set(map(of_block.__getitem__, blocks))) == 1:  # as in nearly every call
            yield self[blocks[0]], list(blocks)
            return
        for end in range(1, len(blocks) + 1):
            if end == len(blocks) or of_block[blocks[end]] != of_block[blocks[begin]]:
                yield self[blocks[begin]], list(blocks[begin:end])
                begin = end

    def _place_at_end(self, held: Sequence[Sequence[Any]], blocks: list[int]) -> int:
        """Blocks of one call are of one group, nearly always the newest there; returns which."""
        of_block, last = self.of_block, blocks[-1]
        found = UNKNOWN
        for group, own in enumerate(held):
            if own and own[-1].block_id == last:
                found = group
                break
        for block in blocks:
            of_block[block] = found
        return found

    def _find(self, held: Sequence[Sequence[Any]], wanted: set[int]) -> bool:
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


class GroupHits:
    """Asks vLLM itself how many tokens each group alone would have found; changes nothing there.

    Only at an admission, and then before its first block is handed out: what a group holds is what
    vLLM's own look-up has just seen.
    """

    def __init__(self, manager: Any) -> None:
        self._ask = _method_of(manager.coordinator)
        configuration = getattr(manager, "kv_cache_config", None)
        groups = getattr(configuration, "kv_cache_groups", ())
        self._takes_part = [_takes_part(group) for group in groups]
        sizes = [getattr(group.kv_cache_spec, "block_size", 0) for group in groups]
        fine = getattr(manager.coordinator, "hash_block_size", None)
        self._least_block = min([*sizes, *([fine] if isinstance(fine, int) else ())], default=0)
        self._request: Any = None
        self._hit = 0
        self._found: list[int] = []

    def expect(self, request: Any, hit: int) -> None:
        """This request may be admitted now. hit: tokens that all groups have found."""
        self._request, self._hit = (request if self._ask is not None else None), hit
        self._found = []

    @property
    def is_expecting(self) -> bool:
        return self._request is not None

    def ask(self) -> None:
        """Blocks are about to be handed out, so the request is admitted."""
        request, self._request = self._request, None
        if request is None:
            return
        longest = request.num_tokens - 1  # the last token is always computed
        if self._hit + self._least_block > longest:  # no group alone can find more than all did
            self._found = [self._hit] * len(self._takes_part)
            return
        try:
            _, lengths = self._ask(request.block_hashes, longest)
            found = [max(0, min(int(length), longest)) for length in lengths]
            if len(found) != len(self._takes_part):
                raise ValueError(f"{len(found)} hits for {len(self._takes_part)} groups")
        except Exception as error:  # the look-up itself is vLLM's, and has gone well
            self._ask = None
            warn(f"hits of single groups are not reported: {type(error).__name__}: {error}")
            return
        parts = list(zip(found, self._takes_part, strict=True))
        most = max((length for length, takes_part in parts if takes_part), default=0)
        self._found = [length if takes_part else most for length, takes_part in parts]

    def take(self) -> list[int]:
        """Tokens by group of the request that was admitted; empty: not known."""
        found, self._found, self._request = self._found, [], None
        return found


def _method_of(coordinator: Any) -> Any:
    """vLLM's look-up of each group by itself; None where it has none that we know."""
    method = getattr(coordinator, _PER_GROUP, None)
    if method is None or not inspect.ismethod(method):
        return None
    return method if tuple(inspect.signature(method.__func__).parameters) == _PARAMETERS else None


def _takes_part(group: Any) -> bool:
    """Whether blocks of the group can hit; scratch memory cannot, and so refuses nothing."""
    return bool(getattr(group.kv_cache_spec, "prefix_cacheable", True))


def _group_of(block_hash: bytes) -> int:
    group = int.from_bytes(block_hash[-GROUP_BYTES:], "big")
    return group if group < MAX_GROUPS else UNKNOWN
