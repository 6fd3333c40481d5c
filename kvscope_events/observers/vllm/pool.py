"""Owners of the pool's blocks, derived from the calls of `BlockPool`.

The owner comes from the call in progress: `allocate_slots` and `free` have a request, everything
else has none (pins of connectors, retained copies). For what the blocks hold, see `content.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kvscope_events.events import (
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
)
from kvscope_events.observers.vllm.evictions import Evicted, tell_evicted
from kvscope_events.observers.vllm.names import NUMBER_OF
from kvscope_events.observers.vllm.wrappers import Method, Site, argument
from kvscope_events.vocabulary import AllocationCause, SharingCause

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer, Owner
    from kvscope_events.observers.vllm.wrappers import Hook

Call = tuple[Any, ...]
Named = dict[str, Any]


def new_blocks(
    observer: Observer, evicted: Evicted | None, blocks: list[Any], args: Call, kwargs: Named
) -> None:
    if not blocks:
        return
    if blocks[-1].block_hash is not None:
        raise ValueError("a block was handed out with its content")
    if evicted is not None and evicted[0]:
        tell_evicted(observer, *evicted, "capacity")
    request = observer.request
    number = None if request is None else observer.sequences.number_of(request)
    cause: AllocationCause = "prefill"
    if (
        request is not None
        and request.status is observer.running
        and request.num_computed_tokens >= request.num_prompt_tokens
    ):
        cause = "decode"
    counts = observer.counts
    counts.active += len(blocks)
    counts.references += len(blocks)
    event = BlocksAllocated(number, list(map(NUMBER_OF, blocks)), cause)
    observer.buffer.append(event)
    if observer.groups is not None:
        observer.groups.allocated(request, event)


def touched(observer: Observer, note: None, result: None, args: Call, kwargs: Named) -> None:
    blocks = argument(args, kwargs, 0, "blocks")
    if len(blocks) and isinstance(blocks[0], list | tuple):  # up to 0.13: one part for each group
        blocks = [block for part in blocks for block in part]
    blocks = [block for block in blocks if not block.is_null]
    if not blocks:
        return
    shared = list(map(NUMBER_OF, blocks))
    activated = sum(1 for block in blocks if block.ref_cnt == 1)
    counts = observer.counts
    counts.active += activated
    counts.cached -= activated
    counts.references += len(shared)
    request, number = observer.request, None
    cause: SharingCause = "pin"
    if request is None:
        observer.slots_known = False  # the writer of pinned blocks is unknown
    else:
        number, cause = observer.sequences.number_of(request), "prefix_hit"
    if observer.groups is None:
        observer.buffer.append(BlocksShared(number, shared, cause))
    else:
        for group, part in observer.groups.touched(blocks):
            observer.buffer.append(BlocksShared(number, part, cause, group))


def freeing(site: Site, hook: Hook, original: Method) -> Method:
    """Wraps methods whose first argument may be an iterator of blocks, which is read only once."""
    name, mine, after = f"{hook.owner}.{hook.method}", hook.mine, hook.after
    parameter = hook.parameters[0]

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        observer = site.observer
        if observer is None or not mine(observer, self):
            return original(self, *args, **kwargs)
        if args:
            blocks = list(args[0])
            args = (blocks, *args[1:])
        else:
            blocks = kwargs[parameter] = list(kwargs[parameter])
        result = original(self, *args, **kwargs)
        if after is not None and observer.live:
            try:
                after(observer, blocks, result, args, kwargs)
            except Exception as error:
                observer.fail(error, name)
        return result

    return wrapper


def freed(observer: Observer, blocks: list[Any], result: None, args: Call, kwargs: Named) -> None:
    if observer.foreign_blocks:
        pool = observer.pool
        blocks = [block for block in blocks if block.pool is None or block.pool is pool]
    blocks = [block for block in blocks if not block.is_null]
    if not blocks:
        return
    owner, groups = _releasing(observer, blocks), observer.groups
    earlier: list[int] = []
    if len({block.block_id for block in blocks}) != len(blocks):
        earlier, blocks = _first_references(blocks)
        observer.counts.references -= len(earlier)
    if groups is None:
        if earlier:
            observer.buffer.append(BlocksReleased(owner[0], [], [], earlier, owner[1]))
        _released(observer, blocks, owner, None)
        return
    for group, part in groups.parts(earlier):
        observer.buffer.append(BlocksReleased(owner[0], [], [], part, owner[1], group))
    begin = 0
    for group, part in groups.parts(list(map(NUMBER_OF, blocks))):
        _released(observer, blocks[begin : begin + len(part)], owner, group)
        begin += len(part)


def _released(observer: Observer, blocks: list[Any], owner: Owner, group: int | None) -> None:
    """The last references in this call to blocks of one group were given back."""
    number, cause = owner
    cached, free, shared = [], [], []
    for block in blocks:
        if block.ref_cnt:
            shared.append(block.block_id)
        elif block.block_hash is None:
            free.append(block.block_id)
        else:
            cached.append(block.block_id)
    counts = observer.counts
    counts.active -= len(cached) + len(free)
    counts.cached += len(cached)
    counts.references -= len(blocks)
    observer.buffer.append(BlocksReleased(number, cached, free, shared, cause, group))


def copied(observer: Observer, note: None, result: None, args: Call, kwargs: Named) -> None:
    """A shared block was replaced by a copy, which is held until it has been written."""
    block = argument(args, kwargs, 3, "cow_block")
    request = observer.request
    number = None if request is None else observer.sequences.number_of(request)
    observer.counts.references += 1
    share_copy(observer, number, block)


def share_copy(observer: Observer, number: int | None, block: Any) -> None:
    """One end of a copy has one more reader, until it was made."""
    event = BlocksShared(number, [block.block_id], "cow")
    observer.buffer.append(event)
    if observer.groups is not None:
        observer.groups.copied(observer.request, event)


def unpinned(
    observer: Observer, blocks: list[Any], result: None, args: Call, kwargs: Named
) -> None:
    observer.releasing = (None, "unpinned")
    try:
        freed(observer, blocks, None, args, kwargs)
    finally:
        observer.releasing = None


def _releasing(observer: Observer, blocks: list[Any]) -> Owner:
    """The sequence that gives these blocks back, and the cause."""
    if observer.releasing is not None:
        return observer.releasing
    request = observer.request
    if request is not None:  # allocate_slots frees what the next tokens will not see
        return observer.sequences.number_of(request), "out_of_window"
    if observer.deferred:
        key = tuple(block.block_id for block in blocks)
        owners = observer.deferred.get(key)
        if owners is not None:
            owner = owners.popleft()
            if not owners:
                del observer.deferred[key]
            return owner
    return None, "unpinned"


def _first_references(blocks: Iterable[Any]) -> tuple[list[int], list[Any]]:
    """All but the last reference of each block that is given back more than once, and the rest."""
    blocks = list(blocks)
    left: dict[int, int] = {}
    for block in blocks:
        left[block.block_id] = left.get(block.block_id, 0) + 1
    earlier, last = [], []
    for block in blocks:
        left[block.block_id] -= 1
        if left[block.block_id]:
            earlier.append(block.block_id)
        else:
            last.append(block)
    return earlier, last
