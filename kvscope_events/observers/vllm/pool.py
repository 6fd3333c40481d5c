"""Owners of the pool's blocks, and what is evicted, derived from the calls of `BlockPool`.

The owner comes from the call in progress: `allocate_slots` and `free` have a request, everything
else has none (pins of connectors, retained copies). Content is lost to make room, by a connector's
order, or by a reset of the prefix cache: a block that no request held is evicted, one that a
request still holds drops its content. For what the blocks hold, see `content.py`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from kvscope_events.events import (
    BlocksEvicted,
    ContentDropped,
    PrefixCacheReset,
)
from kvscope_events.observers.vllm.facts import NUMBER_OF, HandedOut, ReleasedBlocks, SharedBlocks
from kvscope_events.observers.vllm.wrappers import Method, Site, argument, compiled, source
from kvscope_events.vocabulary import (
    AllocationCause,
    ContentCause,
    EvictionCause,
    SharingCause,
)

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer, Owner
    from kvscope_events.observers.vllm.snapshot import Counts
    from kvscope_events.observers.vllm.wrappers import Hook

Call = tuple[Any, ...]
Named = dict[str, Any]

_FREEING = """
    _observer = _site.observer
    if _observer is None or not ({mine}):
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


def handed_out(
    observer: Observer, note: None, blocks: list[Any], args: Call, kwargs: Named
) -> None:
    """Blocks left the queue of free ones, and are about to lose what they hold."""
    count = len(blocks)
    if not count:
        return
    if observer.group_hits is not None and observer.group_hits.is_expecting:
        observer.group_hits.ask()
    counts, hashes = observer.counts, None
    counts.active += count
    counts.references += count
    if count == 1:  # as for a sequence that grows
        some = blocks[0]
        hashes = observer.hash_of(some)
        if hashes is not None:
            counts.cached -= 1
    elif not counts.cached:
        some = blocks[:]
    else:
        some, hashes = blocks[:], observer.hashes_of(blocks)
        had = count if all(hashes) else count - hashes.count(None)
        counts.cached -= had
        observer.buffered_names += had
        if not had:
            hashes = None
    request, groups = observer.request, observer.groups
    if groups is None:
        number, cause = _owner(observer, request)
        observer.buffer.append(HandedOut(number, cause, some, hashes))
        return
    if groups.request is not request or request is None:  # all groups of a request in turn
        groups.request, groups.owner = request, _owner(observer, request)
    number, cause = groups.owner
    fact = HandedOut(number, cause, some, hashes)
    observer.buffer.append(fact)
    groups.noted(request, fact)


def _owner(observer: Observer, request: Any) -> tuple[int | None, AllocationCause]:
    """The sequence that blocks are handed out to, and the cause."""
    if request is None:
        return None, "prefill"
    number = observer.sequences.number_of(request)
    decodes = request.num_computed_tokens >= request.num_prompt_tokens
    return number, "decode" if decodes and request.status is observer.running else "prefill"


def touched(observer: Observer, note: None, result: None, args: Call, kwargs: Named) -> None:
    blocks = argument(args, kwargs, 0, "blocks")
    if not len(blocks):  # of a group that found nothing
        return
    if isinstance(blocks[0], list | tuple):  # up to 0.13: one part for each group
        blocks = [block for part in blocks for block in part]
    blocks = [block for block in blocks if not block.is_null]
    if not blocks:
        return
    activated = [block.ref_cnt for block in blocks].count(1)
    counts = observer.counts
    counts.active += activated
    counts.cached -= activated
    counts.references += len(blocks)
    request, number = observer.request, None
    cause: SharingCause = "pin"
    if request is None:
        observer.slots_known = False  # the writer of pinned blocks is unknown
    else:
        number, cause = observer.sequences.number_of(request), "prefix_hit"
    parts = ((None, blocks),) if observer.groups is None else observer.groups.touched(blocks)
    for group, part in parts:
        observer.buffer.append(SharedBlocks(number, cause, part, group))


def freeing(site: Site, hook: Hook, original: Method) -> Method:
    """Wraps methods whose first argument may be an iterator of blocks, which is read only once."""
    name, mine, after = f"{hook.owner}.{hook.method}", hook.mine, hook.after
    parameter = hook.parameters[0]
    names = {"_site": site, "_mine": mine, "_after": after, "_name": name, "_named": {}}
    body = _FREEING.replace("{first}", parameter).replace("{mine}", source(mine))
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
    number, cause = _releasing(observer, blocks)
    groups = observer.groups
    if len(set(map(NUMBER_OF, blocks))) != len(blocks):
        earlier, blocks = _first_references(blocks)
        observer.counts.references -= len(earlier)
        for group, part in ((None, earlier),) if groups is None else groups.parts(earlier):
            some = [1] * len(part)  # the last of them follows
            observer.buffer.append(ReleasedBlocks(number, cause, part, group, some, some))
    for group, part in ((None, blocks),) if groups is None else groups.parts(blocks):
        left, hashes = [block.ref_cnt for block in part], observer.hashes_of(part)
        _count_released(observer.counts, left, hashes)
        observer.buffer.append(ReleasedBlocks(number, cause, part, group, left, hashes))


def _freed_one(observer: Observer, blocks: list[Any]) -> None:
    (block,) = blocks
    if block.is_null or (
        observer.foreign_blocks and block.pool is not None and block.pool is not observer.pool
    ):
        return
    number, cause = _releasing(observer, blocks)
    left, block_hash, counts = block.ref_cnt, observer.hash_of(block), observer.counts
    counts.references -= 1
    if not left:
        counts.active -= 1
        if block_hash is not None:
            counts.cached += 1
    group = None if observer.groups is None else observer.groups[block.block_id]
    observer.buffer.append(ReleasedBlocks(number, cause, block, group, left, block_hash))


def _count_released(counts: Counts, left: list[int], hashes: list[bytes | None]) -> None:
    """left: the references that each block still has."""
    counts.references -= len(left)
    if any(left):
        hashes = [name for name, count in zip(hashes, left, strict=True) if not count]
    counts.active -= len(hashes)
    counts.cached += len(hashes) if all(hashes) else len(hashes) - hashes.count(None)


def copied(observer: Observer, note: None, result: None, args: Call, kwargs: Named) -> None:
    """A shared block was replaced by a copy, which is held until it has been written."""
    block = argument(args, kwargs, 3, "cow_block")
    request = observer.request
    number = None if request is None else observer.sequences.number_of(request)
    observer.counts.references += 1
    share_copy(observer, number, block)


def share_copy(observer: Observer, number: int | None, block: Any) -> None:
    """One end of a copy has one more reader, until it was made."""
    fact = SharedBlocks(number, "cow", block)
    observer.buffer.append(fact)
    if observer.groups is not None and observer.request is not None:
        observer.groups.noted(observer.request, fact)


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


def _first_references(blocks: list[Any]) -> tuple[list[Any], list[Any]]:
    """All but the last reference of each block that is given back more than once, and the rest."""
    left: dict[int, int] = {}
    earlier: list[Any] = []
    last: list[Any] = []
    for block in blocks:
        left[block.block_id] = left.get(block.block_id, 0) + 1
    for block in blocks:
        left[block.block_id] -= 1
        (earlier if left[block.block_id] else last).append(block)
    return earlier, last


Hashed = list[tuple[Any, bytes]]
"""Blocks, and the hash that each had before the call."""


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
