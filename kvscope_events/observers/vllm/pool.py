"""What happens to the blocks of the pool, told from the calls of `BlockPool`.

Whose blocks they are comes from the call in progress: `allocate_slots` and `free` have a request,
`cache_full_blocks` brings its own. All else has no request: pins of connectors, retained copies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    ContentDropped,
    PrefixCacheReset,
)
from kvscope_events.observers.vllm.names import check_hash
from kvscope_events.observers.vllm.wrappers import Method, Site, argument
from kvscope_events.vocabulary import AllocationCause, ContentCause, EvictionCause

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.hooks import Hook
    from kvscope_events.observers.vllm.observer import Observer, Owner

Call = tuple[Any, ...]
Named = dict[str, Any]
Hashed = list[tuple[Any, bytes]]
"""Blocks, and the hash that each had before the call."""
Evicted = tuple[list[int], list[bytes]]
"""Numbers of blocks, and their hashes."""
Caching = tuple[list[Any], "list[bytes | None] | None"]
"""Blocks that may become findable, and their hashes before; None: they had none."""
One = tuple[Any, Any]
"""A block, and the hash or None that it had before the call."""


def before_new_blocks(observer: Observer, args: Call, kwargs: Named) -> Evicted | None:
    """The blocks at the head of the queue that will lose their content."""
    if not observer.counts.cached:
        return None
    block = observer.queue.fake_free_list_head
    blocks, hashes = [], []
    for _ in range(argument(args, kwargs, 0, "num_blocks")):
        block = block.next_free_block
        if block is None:  # more than there are: the call will raise
            break
        block_hash = block.block_hash
        if block_hash is not None:
            blocks.append(block.block_id)
            hashes.append(block_hash)
    return blocks, hashes


def new_blocks(
    observer: Observer, evicted: Evicted | None, blocks: list[Any], args: Call, kwargs: Named
) -> None:
    if not blocks:
        return
    if blocks[-1].block_hash is not None:
        raise ValueError("a block was handed out with its content")
    if evicted is not None and evicted[0]:
        names = observer.names.of_blocks(evicted[1])
        observer.buffered_names += len(names)
        observer.counts.cached -= len(names)
        observer.buffer.append(BlocksEvicted(evicted[0], names, "capacity"))
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
    observer.buffer.append(BlocksAllocated(number, [block.block_id for block in blocks], cause))


def touched(observer: Observer, note: None, result: None, args: Call, kwargs: Named) -> None:
    blocks = argument(args, kwargs, 0, "blocks")
    if len(blocks) and isinstance(blocks[0], list | tuple):  # up to 0.13: one part for each group
        blocks = [block for part in blocks for block in part]
    shared = []
    activated = 0
    for block in blocks:
        if not block.is_null:
            shared.append(block.block_id)
            activated += block.ref_cnt == 1
    if not shared:
        return
    counts = observer.counts
    counts.active += activated
    counts.cached -= activated
    counts.references += len(shared)
    request = observer.request
    if request is None:
        observer.slots_known = False  # who writes pinned blocks is not known
        observer.buffer.append(BlocksShared(None, shared, "pin"))
    else:
        number = observer.sequences.number_of(request)
        observer.buffer.append(BlocksShared(number, shared, "prefix_hit"))


def freeing(site: Site, hook: Hook, original: Method) -> Method:
    """For methods whose first argument may be an iterator of blocks, which only one can read."""
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
    number, cause = _releasing(observer, blocks)
    if len({block.block_id for block in blocks}) != len(blocks):
        earlier, blocks = _first_references(blocks)
        observer.buffer.append(BlocksReleased(number, [], [], earlier, cause))
        observer.counts.references -= len(earlier)
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
    observer.buffer.append(BlocksReleased(number, cached, free, shared, cause))


def before_cached(observer: Observer, args: Call, kwargs: Named) -> Caching:
    if args:
        blocks = argument(args, kwargs, 1, "blocks")
        begin = argument(args, kwargs, 2, "num_cached_blocks")
        new = blocks[begin : argument(args, kwargs, 3, "num_full_blocks")]
    else:
        new = kwargs["blocks"][kwargs["num_cached_blocks"] : kwargs["num_full_blocks"]]
    if not observer.names_partial_blocks:
        return new, None
    return new, [block.block_hash for block in new]


def cached(
    observer: Observer,
    note: Caching,
    result: None,
    args: Call,
    kwargs: Named,
) -> None:
    """Null and masked blocks get no hash, and a partial block's hash may be replaced."""
    new, before = note
    after = [block.block_hash for block in new]
    if not after or before == after:
        return
    skipped = 0
    if None in after or before is not None:
        before = before or [None] * len(after)
        _replaced(observer, new, before, after)
        places = [
            place
            for place, (old, block_hash) in enumerate(zip(before, after, strict=True))
            if block_hash is not None and block_hash != old and not new[place].is_null
        ]
        if not places:
            return
        skipped = places[0]
        new = [new[place] for place in places]
        after = [after[place] for place in places]
    request = argument(args, kwargs, 0, "request")
    first = argument(args, kwargs, 2, "num_cached_blocks") + skipped
    parent = None
    if first:
        # The neighbour may be null, so the parent comes from the request's own hashes.
        per_block = argument(args, kwargs, 4, "block_size") // observer.block_size
        digest = request.block_hashes[first * per_block - 1]
        group = argument(args, kwargs, 5, "kv_cache_group_id")
        parent = observer.names.of_content(digest, group)
    check_hash(after[0])
    names = observer.names.of_blocks(after)
    blocks = [block.block_id for block in new]
    observer.buffered_names += len(names)
    observer.buffer.append(
        BlocksCached(observer.sequences.number_of(request), blocks, names, parent)
    )


def before_one(index: int, name: str) -> Callable[[Observer, Call, Named], One]:
    """For calls that change the content of one block, their argument `index`."""

    def before(observer: Observer, args: Call, kwargs: Named) -> One:
        block = argument(args, kwargs, index, name)
        return block, block.block_hash

    return before


def cached_partially(observer: Observer, note: One, result: Any, args: Call, kwargs: Named) -> None:
    """A block became findable before it is full, under a name that ends inside it."""
    block, before = note
    _replaced(observer, [block], [before], [block.block_hash])
    if block.block_hash is None or block.block_hash == before or block.is_null:
        return
    request = argument(args, kwargs, 0, "request")
    last = argument(args, kwargs, 2, "num_tokens") // observer.block_size - 1
    group = argument(args, kwargs, 3, "kv_cache_group_id")
    parent = None
    if last > 0:
        parent = observer.names.of_content(request.block_hashes[last - 1], group)
    number = observer.sequences.number_of(request)
    name = observer.names.of_block(block.block_hash)
    observer.buffer.append(BlocksCached(number, [block.block_id], [name], parent))


def moved(observer: Observer, note: One, result: None, args: Call, kwargs: Named) -> None:
    """The names of a block went to its private copy; vLLM then counts one more reader of it."""
    source, before = note
    target = argument(args, kwargs, 1, "dst_block")
    if before is not None and source.block_hash is None:
        _lost(observer, [(source, before)], "capacity", "moved", was_free=False)
    request = observer.request
    number = None if request is None else observer.sequences.number_of(request)
    if target.block_hash is not None:
        name = observer.names.of_block(target.block_hash)
        observer.buffer.append(BlocksCached(number, [target.block_id], [name], None))
    observer.counts.references += 1
    observer.buffer.append(BlocksShared(number, [source.block_id], "cow"))


def copied(observer: Observer, note: None, result: None, args: Call, kwargs: Named) -> None:
    """A shared block was replaced by a copy, which is held until it has been written."""
    block = argument(args, kwargs, 3, "cow_block")
    request = observer.request
    number = None if request is None else observer.sequences.number_of(request)
    observer.counts.references += 1
    observer.buffer.append(BlocksShared(number, [block.block_id], "cow"))


def unpinned(
    observer: Observer, blocks: list[Any], result: None, args: Call, kwargs: Named
) -> None:
    observer.releasing = (None, "unpinned")
    try:
        freed(observer, blocks, None, args, kwargs)
    finally:
        observer.releasing = None


def before_ordered(observer: Observer, args: Call, kwargs: Named) -> Hashed:
    blocks = [observer.pool.blocks[block] for block in argument(args, kwargs, 0, "block_ids")]
    return [(block, block.block_hash) for block in blocks if block.block_hash is not None]


def ordered(observer: Observer, hashed: Hashed, result: None, args: Call, kwargs: Named) -> None:
    """A connector had blocks forgotten, referenced or not, since their content is not valid."""
    free = [(block, old) for block, old in hashed if not block.ref_cnt]
    held = [(block, old) for block, old in hashed if block.ref_cnt]
    _lost(observer, free, "ordered", "invalid", was_free=True)
    _lost(observer, held, "ordered", "invalid", was_free=False)


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
        _lost(observer, hashed, "reset", "invalid", was_free=True)
        observer.buffer.append(PrefixCacheReset(len(hashed)))


def _lost(
    observer: Observer,
    hashed: Hashed,
    eviction: EvictionCause,
    content: ContentCause,
    *,
    was_free: bool,
) -> None:
    """Tell those of the blocks that have no hash any more."""
    gone = [(block, old) for block, old in hashed if block.block_hash is None]
    if not gone:
        return
    blocks = [block.block_id for block, _ in gone]
    names = observer.names.of_blocks([old for _, old in gone])
    observer.buffered_names += len(names)
    if was_free:
        observer.counts.cached -= len(gone)
        observer.buffer.append(BlocksEvicted(blocks, names, eviction))
    else:
        observer.buffer.append(ContentDropped(blocks, names, content))


def _replaced(
    observer: Observer, blocks: list[Any], before: list[bytes | None], after: list[bytes | None]
) -> None:
    """Tell the names that referenced blocks had and have no more."""
    if before.count(None) == len(before):
        return
    changed = [
        (block.block_id, old)
        for block, old, new in zip(blocks, before, after, strict=True)
        if old is not None and old != new
    ]
    if changed:
        names = observer.names.of_blocks([old for _, old in changed])
        observer.buffer.append(ContentDropped([block for block, _ in changed], names, "replaced"))


def _releasing(observer: Observer, blocks: list[Any]) -> Owner:
    """Who gives these blocks back, and why."""
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
