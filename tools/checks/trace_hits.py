"""Prefix hits of a trace at given capacities, through the real block pool as pure accounting.

    python -m tools.checks.trace_hits TRACE.jsonl CAPACITY...

TRACE is in Mooncake's format (one JSON object a line with `hash_ids`). Every id is one block, the
partial last one too; a request takes its blocks and gives them back at once. Prints one line per
capacity: capacity, hit blocks, queried blocks.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.block_pool import BlockPool
from exporter.fold import Ledger
from kvscope.mooncake import TRACE_BLOCK_TOKENS, TraceError, read_trace
from kvscope_events.bus import EventBus, Subscription
from kvscope_events.events import PrefixLookup


def replay(paths: Iterable[Sequence[int]], capacity: int) -> tuple[int, int]:
    """(hit blocks, queried blocks) of an LRU pool of `capacity` blocks, counted from its events.

    A path longer than the pool keeps its head: the tail finds no block and is not cached, which is
    what plain LRU leaves of it after a tail-first release.
    """
    bus = EventBus()
    events = bus.subscribe(queue_batches=1)
    pool = BlockPool(capacity, TRACE_BLOCK_TOKENS, bus)
    ledger = Ledger()
    hits = queried = 0
    for request, path in enumerate(paths):
        names = [block_id.to_bytes(16) for block_id in path]
        prefix = pool.find(names)
        bus.emit(PrefixLookup(request, len(path) * TRACE_BLOCK_TOKENS, names, len(prefix)))
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


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2 or not all(a.isdecimal() and int(a) > 0 for a in arguments[1:]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        paths = [request.hash_ids for request in read_trace(Path(arguments[0]))]
    except (OSError, TraceError) as error:
        print(f"trace_hits: {error}", file=sys.stderr)
        return 2
    for capacity in map(int, arguments[1:]):
        hits, queried = replay(paths, capacity)
        print(capacity, hits, queried, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
