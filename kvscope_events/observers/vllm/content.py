"""What the blocks of the pool hold, told from the calls of `BlockPool`: names given and taken away.

Only the eviction that makes room is in `pool.py`, where the blocks are handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvscope_events.events import (
    BlocksCached,
    BlocksEvicted,
    BlocksShared,
    ContentDropped,
    PrefixCacheReset,
)
from kvscope_events.observers.vllm.names import check_hash
from kvscope_events.observers.vllm.pool import NUMBER_OF
from kvscope_events.observers.vllm.wrappers import argument
from kvscope_events.vocabulary import ContentCause, EvictionCause

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer

Call = tuple[Any, ...]
Named = dict[str, Any]
Hashed = list[tuple[Any, bytes]]
"""Blocks, and the hash that each had before the call."""
Caching = tuple[list[Any], "list[bytes | None] | None"]
"""Blocks that may become findable, and their hashes before; None: they had none."""
One = tuple[Any, Any]
"""A block, and the hash or None that it had before the call."""


def before_cached(observer: Observer, args: Call, kwargs: Named) -> Caching:
    if args:
        blocks = argument(args, kwargs, 1, "blocks")
        begin = argument(args, kwargs, 2, "num_cached_blocks")
        new = blocks[begin : argument(args, kwargs, 3, "num_full_blocks")]
    else:
        new = kwargs["blocks"][kwargs["num_cached_blocks"] : kwargs["num_full_blocks"]]
    if not observer.names_partial_blocks:
        return new, None
    return new, list(map(observer.hash_of, new))


def cached(
    observer: Observer,
    note: Caching,
    result: None,
    args: Call,
    kwargs: Named,
) -> None:
    """Null and masked blocks get no hash, and a partial block's hash may be replaced."""
    new, before = note
    after = list(map(observer.hash_of, new))
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
    blocks = list(map(NUMBER_OF, new))
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
