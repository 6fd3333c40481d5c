"""Names of the pool's blocks, derived from the calls of `BlockPool` that assign them.

For blocks that lose a name without getting another, see `pool.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvscope_events.events import BlocksCached, ContentDropped
from kvscope_events.observers.vllm.facts import NamedBlocks as NamedBlocks
from kvscope_events.observers.vllm.facts import check_hash
from kvscope_events.observers.vllm.pool import share_copy, tell_lost
from kvscope_events.observers.vllm.wrappers import argument

if TYPE_CHECKING:
    from kvscope_events.observers.vllm.observer import Observer

Call = tuple[Any, ...]
Named = dict[str, Any]
One = tuple[Any, Any]
"""A block, and its hash before the call, or None."""


def before_cached(observer: Observer, args: Call, kwargs: Named) -> list[bytes | None] | None:
    """Hashes of the blocks that may become findable; None: they have none."""
    if not observer.names_partial_blocks:
        return None
    _, blocks, first, end, _ = _arguments(args, kwargs)
    return observer.hashes_of(blocks[first:end])


def cached(
    observer: Observer,
    before: list[bytes | None] | None,
    result: None,
    args: Call,
    kwargs: Named,
) -> None:
    """Null and masked blocks get no hash, and a partial block's hash may be replaced."""
    request, blocks, first, end, tokens = _arguments(args, kwargs)
    if before is None and end - first == 1:  # as for a sequence that grows
        new: Any = blocks[first]
        after: Any = observer.hash_of(new)
        if after is None:
            return
        count, sample = 1, after
    else:
        new = blocks[first:end]
        after = observer.hashes_of(new)
        if before is not None:
            _replaced(observer, new, before, after)
            after = [
                None if block.is_null or block_hash == old else block_hash
                for block, old, block_hash in zip(new, before, after, strict=True)
            ]
        if not any(after):  # windows keep few of theirs
            return
        while after[0] is None:
            del after[0], new[0]
            first += 1
        count, sample = len(after), after[0]
    if not observer.hash_checked:
        check_hash(sample)
        observer.hash_checked = True
    digest = None
    if first:
        # The neighbour may be null, so the parent comes from the request's own hashes.
        digest = request.block_hashes[first * (tokens // observer.block_size) - 1]
    sequence = observer.sequences.find(request.request_id)
    number = None if sequence is None else sequence.number
    observer.buffered_names += count
    observer.buffer.append(NamedBlocks(number, new, after, digest))


def _arguments(args: Call, kwargs: Named) -> tuple[Any, list[Any], int, int, int]:
    """The request, all its blocks, the first and the end of those to name, tokens of a block."""
    if len(args) > 4:
        return args[:5]
    names = ("request", "blocks", "num_cached_blocks", "num_full_blocks", "block_size")
    return tuple(argument(args, kwargs, place, name) for place, name in enumerate(names))


def before_one(index: int, name: str) -> Callable[[Observer, Call, Named], One]:
    """A handler for calls that change the content of one block, their argument `index`."""

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
    """A block's names moved to its private copy; vLLM then counts one more reader of it."""
    source, before = note
    target = argument(args, kwargs, 1, "dst_block")
    if before is not None and source.block_hash is None:
        tell_lost(observer, [(source, before)], "capacity", "moved", was_free=False)
    request = observer.request
    number = None if request is None else observer.sequences.number_of(request)
    if target.block_hash is not None:
        name = observer.names.of_block(target.block_hash)
        observer.buffer.append(BlocksCached(number, [target.block_id], [name], None))
    observer.counts.references += 1
    share_copy(observer, number, source)


def _replaced(
    observer: Observer, blocks: list[Any], before: list[bytes | None], after: list[bytes | None]
) -> None:
    """Report the names that referenced blocks have lost."""
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
