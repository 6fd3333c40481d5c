"""Every loss of content: to make room, by a connector's order, by a reset of the prefix cache.

A block that no request held is evicted; one that a request still holds drops its content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvscope_events.events import BlocksEvicted, ContentDropped, PrefixCacheReset
from kvscope_events.observers.vllm.names import NUMBER_OF
from kvscope_events.observers.vllm.wrappers import argument
from kvscope_events.vocabulary import ContentCause, EvictionCause

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer

Call = tuple[Any, ...]
Named = dict[str, Any]
Evicted = tuple[list[int], list[bytes]]
"""Numbers of blocks, and their hashes."""
Hashed = list[tuple[Any, bytes]]
"""Blocks, and the hash that each had before the call."""


def before_new_blocks(observer: Observer, args: Call, kwargs: Named) -> Evicted | None:
    """The blocks at the head of the queue that will lose their content."""
    if observer.group_hits is not None:
        observer.group_hits.ask()
    if not observer.counts.cached:
        return None
    number, queue = argument(args, kwargs, 0, "num_blocks"), observer.queue
    if number > queue.num_free_blocks:  # the call will raise
        return None
    block, first = queue.fake_free_list_head, []
    for _ in range(number):
        block = block.next_free_block
        first.append(block)
    hashes = list(map(observer.hash_of, first))
    if None in hashes:
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
