"""Prefix hits of paths of blocks at a capacity, through the real block pool as pure accounting."""

from collections.abc import Iterable, Sequence

from kvscope_engine.block_pool import BlockPool
from kvscope_events.bus import EventBus, Subscription
from kvscope_events.events import PrefixLookup
from kvscope_exporter.state import Ledger

_BLOCK_TOKENS = 512


def replay(paths: Iterable[Sequence[int]], capacity: int) -> tuple[int, int]:
    """(hit blocks, queried blocks) of an LRU pool of `capacity` blocks, counted from its events.

    A path longer than the pool keeps its head: the tail finds no block and is not cached, which is
    what plain LRU leaves of it after a tail-first release.
    """
    bus = EventBus()
    events = bus.subscribe(queue_batches=1)
    pool = BlockPool(capacity, _BLOCK_TOKENS, bus)
    ledger = Ledger()
    hits = queried = 0
    for request, path in enumerate(paths):
        names = [block_id.to_bytes(16) for block_id in path]
        prefix = pool.find(names)
        bus.emit(PrefixLookup(request, len(path) * _BLOCK_TOKENS, names, len(prefix)))
        pool.share(request, prefix)
        count = min(len(path), capacity) - len(prefix)
        table = prefix + pool.allocate(request, count, "prefill") if count else list(prefix)
        if count:
            first = len(prefix)
            parent = names[first - 1] if first else None
            pool.cache(request, table[first:], names[first : len(table)], parent)
        pool.release(request, table, "finished")
        bus.flush()
        hit, asked = _fold(events, ledger)
        hits, queried = hits + hit, queried + asked
    assert ledger.imbalance == 0, "the events contradict each other"
    assert ledger.state() == pool.snapshot(), "the ledger and the pool disagree"
    pool.check()
    return hits, queried


def _fold(events: Subscription, ledger: Ledger) -> tuple[int, int]:
    taken = events.take()
    assert taken is not None
    hits = queried = 0
    for event in taken[0].events:
        ledger.apply(event)
        if isinstance(event, PrefixLookup):
            hits += event.hit_blocks
            queried += len(event.hashes)
    return hits, queried
