"""Owners of the pool's blocks, and what is evicted, derived from the calls of `BlockPool`.

The owner comes from the call in progress: `allocate_slots` and `free` have a request, everything
else has none (pins of connectors, retained copies). Content is lost to make room, by a connector's
order, or by a reset of the prefix cache: a block that no request held is evicted, one that a
request still holds drops its content. For what the blocks hold, see `content.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kvscope_events.events import (
    BlocksAllocated,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    PrefixCacheReset,
)
from kvscope_events.observers.vllm.exact import compiled
from kvscope_events.observers.vllm.names import NUMBER_OF
from kvscope_events.observers.vllm.wrappers import Method, Site, argument
from kvscope_events.vocabulary import (
    AllocationCause,
    ContentCause,
    EvictionCause,
    SharingCause,
)

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer, Owner
    from kvscope_events.observers.vllm.wrappers import Hook

Call = tuple[Any, ...]
Named = dict[str, Any]
_NOTHING: list[int] = []
"""Shared by events, which nothing changes."""

_FREEING = """
    _observer = _site.observer
    if _observer is None or not _mine(_observer, self):
        return _original({arguments})
    {first} = list({first})
    _result = _original({arguments})
    if _after is not None and _observer.live:
        try:
            _after(_observer, {first}, _result, ({by_place}), _named)
        except Exception as _error:
            _observer.fail(_error, _name)
    return _result
"""


def new_blocks(
    observer: Observer, evicted: Evicted | None, blocks: list[Any], args: Call, kwargs: Named
) -> None:
    if not blocks:
        return
    if observer.hash_of(blocks[-1]) is not None:
        raise ValueError("a block was handed out with its content")
    if evicted is not None:
        tell_evicted(observer, *evicted, "capacity")
    request = observer.request
    number = None
    cause: AllocationCause = "prefill"
    if request is not None:
        sequence = observer.sequences.find(request.request_id)
        if sequence is not None:
            number = sequence.number
        if (
            request.num_computed_tokens >= request.num_prompt_tokens
            and request.status is observer.running
        ):
            cause = "decode"
    counts, count = observer.counts, len(blocks)
    counts.active += count
    counts.references += count
    numbers = [blocks[0].block_id] if count == 1 else list(map(NUMBER_OF, blocks))
    event = BlocksAllocated(number, numbers, cause)
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
    names = {"_site": site, "_mine": mine, "_after": after, "_name": name, "_named": {}}
    body = _FREEING.replace("{first}", parameter)
    exact = compiled(original, body, {**names, "_original": original})
    if exact is not None:
        return exact

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
    if len(blocks) == 1:  # as for a window that moves
        _freed_one(observer, blocks)
        return
    if observer.foreign_blocks:
        pool = observer.pool
        blocks = [block for block in blocks if block.pool is None or block.pool is pool]
    blocks = [block for block in blocks if not block.is_null]
    if not blocks:
        return
    owner, groups = _releasing(observer, blocks), observer.groups
    earlier: list[int] = []
    if len(set(map(NUMBER_OF, blocks))) != len(blocks):
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


def _freed_one(observer: Observer, blocks: list[Any]) -> None:
    (block,) = blocks
    if block.is_null or (
        observer.foreign_blocks and block.pool is not None and block.pool is not observer.pool
    ):
        return
    owner, cause = _releasing(observer, blocks)
    number, counts, groups = block.block_id, observer.counts, observer.groups
    counts.references -= 1
    cached, free, shared = _NOTHING, _NOTHING, _NOTHING
    if block.ref_cnt:
        shared = [number]
    else:
        counts.active -= 1
        if observer.hash_of(block) is None:
            free = [number]
        else:
            cached = [number]
            counts.cached += 1
    group = None if groups is None else groups[number]
    observer.buffer.append(BlocksReleased(owner, cached, free, shared, cause, group))


def _released(observer: Observer, blocks: list[Any], owner: Owner, group: int | None) -> None:
    """The last references in this call to blocks of one group were given back."""
    number, cause = owner
    cached, free, shared = [], [], []
    for block, content in zip(blocks, map(observer.hash_of, blocks), strict=True):
        if block.ref_cnt:
            shared.append(block.block_id)
        elif content is None:
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


Evicted = tuple[list[int], list[bytes]]
"""Numbers of blocks, and their hashes."""
Hashed = list[tuple[Any, bytes]]
"""Blocks, and the hash that each had before the call."""


def before_new_blocks(observer: Observer, args: Call, kwargs: Named) -> Evicted | None:
    """The blocks at the head of the queue that will lose their content; None: none will."""
    if observer.group_hits is not None and observer.group_hits.is_expecting:
        observer.group_hits.ask()
    if not observer.counts.cached:
        return None
    number, queue = argument(args, kwargs, 0, "num_blocks"), observer.queue
    if number > queue.num_free_blocks:  # the call will raise
        return None
    block = queue.fake_free_list_head
    if number == 1:  # as for a sequence that grows
        block = block.next_free_block
        old = observer.hash_of(block)
        return None if old is None else ([block.block_id], [old])
    first = []
    for _ in range(number):
        block = block.next_free_block
        first.append(block)
    hashes = list(map(observer.hash_of, first))
    if None in hashes:
        if hashes.count(None) == number:
            return None
        first = [block for block, old in zip(first, hashes, strict=True) if old is not None]
        hashes = [old for old in hashes if old is not None]
    return list(map(NUMBER_OF, first)), hashes


def before_ordered(observer: Observer, args: Call, kwargs: Named) -> Hashed:
    blocks = [observer.pool.blocks[block] for block in argument(args, kwargs, 0, "block_ids")]
    return [(block, block.block_hash) for block in blocks if block.block_hash is not None]


def ordered(observer: Observer, hashed: Hashed, result: None, args: Call, kwargs: Named) -> None:
    """A connector dropped blocks, referenced or not, whose content is not valid."""
    free = [(block, old) for block, old in hashed if not block.ref_cnt]
    held = [(block, old) for block, old in hashed if block.ref_cnt]
    tell_lost(observer, free, "ordered", "invalid", was_free=True)
    tell_lost(observer, held, "ordered", "invalid", was_free=False)


def before_reset(observer: Observer, args: Call, kwargs: Named) -> Hashed:
    hashed = []
    block = observer.queue.fake_free_list_head.next_free_block
    for _ in range(len(observer.pool.blocks)):
        if block is None or block.block_id < 0:
            break
        if block.block_hash is not None:
            hashed.append((block, block.block_hash))
        block = block.next_free_block
    return hashed


def was_reset(observer: Observer, hashed: Hashed, success: bool, args: Call, kwargs: Named) -> None:
    """A reset that is refused changes nothing."""
    if success:
        tell_lost(observer, hashed, "reset", "invalid", was_free=True)
        observer.buffer.append(PrefixCacheReset(len(hashed)))


def tell_evicted(
    observer: Observer, blocks: list[int], hashes: list[bytes], cause: EvictionCause
) -> None:
    names = observer.names.of_blocks(hashes)
    observer.buffered_names += len(names)
    observer.counts.cached -= len(names)
    observer.buffer.append(BlocksEvicted(blocks, names, cause))


def tell_lost(
    observer: Observer,
    hashed: Hashed,
    eviction: EvictionCause,
    content: ContentCause,
    *,
    was_free: bool,
) -> None:
    """Report the blocks that no longer have a hash."""
    gone = [(block, old) for block, old in hashed if block.block_hash is None]
    if not gone:
        return
    blocks, hashes = [block.block_id for block, _ in gone], [old for _, old in gone]
    if was_free:
        tell_evicted(observer, blocks, hashes, eviction)
        return
    names = observer.names.of_blocks(hashes)
    observer.buffered_names += len(names)
    observer.buffer.append(ContentDropped(blocks, names, content))
