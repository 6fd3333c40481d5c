"""Cost of the hits at other pool sizes: `python -m benchmarks.whatif_cost [TRACE.jsonl]`.

TRACE: a trace of Mooncake's form, a list of block ids (`hash_ids`) a line; without one, made-up
conversations. Nanoseconds a queried block: of the stack of runs alone, horizon four times a pool of
4,000 blocks; of the whole cache fold on a pool's events with the question answered
and with a pool for which it is not (a sliding window), in turn; the same in a pool of a million
blocks. Bytes a tracked block. CPU time of the thread, the least and the median of repetitions, and
one JSON line.
"""

import argparse
import gc
import json
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median

from benchmarks.engine_stream import taken
from benchmarks.report import report, thread_ns
from kvscope_engine.block_pool import BlockPool
from kvscope_events.bus import EventBus
from kvscope_events.events import Batch, CacheGroup, PoolCreated, PrefixLookup
from kvscope_exporter.state import Cache
from kvscope_exporter.state.cache.run_stack import RunStack

POOL_BLOCKS = 4_000
SIZES = (1_000, 1_000_000)
BLOCK_SIZE = 16
REPETITIONS = 5
TIMED_REQUESTS = 3_000
FILLING_BLOCKS = 500
WINDOWED = [CacheGroup("sliding_window", BLOCK_SIZE, 128)]

Paths = list[list[bytes]]


def name(number: int) -> bytes:
    return number.to_bytes(16, "little")


def conversations(seed: int) -> Iterator[list[bytes]]:
    """A system prompt of 8 blocks, turns of 16; half of the requests go on with a recent one.

    Few enough that a pool of a thousand blocks finds as much as one of a million.
    """
    random, fresh = Random(seed), seed << 64
    system = [name(fresh + index) for index in range(8)]
    fresh += 8
    recent: list[list[bytes]] = [system]
    while True:
        begin = random.choice(recent) if random.random() < 0.5 else system
        path = begin + [name(fresh + index) for index in range(16)]
        fresh += 16
        recent.append(path if len(path) < 100 else system)
        del recent[:-12]
        yield path


def trace(path: Path) -> Paths:
    with path.open() as lines:
        return [[name(block) for block in json.loads(line)["hash_ids"]] for line in lines]


def stack_ns(paths: Paths) -> float:
    """Lookups that are released at once."""
    stack = RunStack(4 * POOL_BLOCKS)
    gc.collect()

    def take_and_push() -> None:
        for path in paths:
            stack.take(path)
            stack.push(path)

    return thread_ns(take_and_push) / sum(map(len, paths))


def bytes_per_block(paths: Paths) -> float:
    """Bytes per block of a stack that is as full as it gets, without the names, which others
    share."""
    gc.collect()
    tracemalloc.start()
    stack = RunStack(4 * POOL_BLOCKS)
    for path in paths:
        stack.take(path)
        stack.push(path.copy())
    gc.collect()
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return memory / len(stack)


class Requests:
    """Batches of a pool, four requests running at a time; one batch for each request."""

    def __init__(self, num_blocks: int, paths: Iterator[list[bytes]]) -> None:
        self._bus = EventBus()
        self._events = self._bus.subscribe(queue_batches=4)
        self._pool = BlockPool(num_blocks, BLOCK_SIZE, self._bus)
        self._paths = paths
        self._running: list[list[int]] = []
        self._sequence = 0

    def filling(self) -> Iterator[Batch]:
        """Content that is never asked for again, until the pool is full of it."""
        pool = self._pool
        for first in range(0, pool.num_usable, FILLING_BLOCKS):
            count = min(FILLING_BLOCKS, pool.num_usable - first)
            blocks = pool.allocate(0, count, "prefill")
            pool.cache(0, blocks.copy(), [name(1 << 100 | first + i) for i in range(count)], None)
            pool.release(0, blocks, "finished")
            self._bus.flush()
            yield from taken(self._events)

    def batches(self) -> Iterator[Batch]:
        """Until the paths end."""
        pool = self._pool
        for path in self._paths:
            self._sequence += 1
            sequence = self._sequence
            if len(self._running) == 4:
                pool.release(sequence - 4, self._running.pop(0), "finished")
            found = pool.find(path)
            tokens = len(path) * BLOCK_SIZE + 1
            self._bus.emit(PrefixLookup(sequence, tokens, path, len(found)))
            if found:
                pool.share(sequence, found)
            fresh = pool.allocate(sequence, len(path) - len(found), "prefill")
            if fresh:
                pool.cache(sequence, fresh.copy(), path[len(found) :], None)
            self._running.append(found + fresh)
            self._bus.flush()
            yield from taken(self._events)


def fold_ns(num_blocks: int, paths: Callable[[], Iterator[list[bytes]]]) -> dict[str, list[float]]:
    """Nanoseconds a queried block once the pool is full, with the question and without."""
    folds = {"with": Cache(), "without": Cache()}
    folds["without"].apply(PoolCreated(num_blocks, BLOCK_SIZE, 0, groups=WINDOWED))
    requests = Requests(num_blocks, paths())
    stream = requests.batches()
    filling = requests.filling()
    first = next(filling)
    folds["with"].on_batch(first)
    folds["without"].on_batch(Batch(0, 0, first.events[1:]))
    for batch in (*filling, *islice(stream, TIMED_REQUESTS)):
        for fold in folds.values():
            fold.on_batch(batch)
    samples: dict[str, list[float]] = {key: [] for key in folds}
    for _ in range(REPETITIONS):
        batches = list(islice(stream, TIMED_REQUESTS))
        queried = sum(
            len(event.hashes)
            for batch in batches
            for event in batch.events
            if isinstance(event, PrefixLookup)
        )
        for key, fold in folds.items():
            gc.collect()
            spent = thread_ns(partial(deque, map(fold.on_batch, batches), 0))
            samples[key].append(spent / queried)
    assert folds["with"].whatif.known
    assert not folds["without"].whatif.known
    assert not folds["with"].whatif.error_blocks
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--blocks", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    if arguments.trace is None:
        paths = list(islice(conversations(1), 10_000))
    else:
        paths = trace(arguments.trace)
    samples = [stack_ns(paths) for _ in range(REPETITIONS)]
    rows: dict[str, object] = {
        "stack, ns a block": _spread(samples),
        "stack, bytes a tracked block": bytes_per_block(paths),
    }
    folds = {size: fold_ns(size, lambda: conversations(2)) for size in arguments.blocks}
    for size, found in folds.items():
        added = [a - b for a, b in zip(found["with"], found["without"], strict=True)]
        for key, values in {**found, "added": added}.items():
            rows[f"cache fold, {size:,} blocks, {key}, ns a block"] = _spread(values)
    small, large = (min(folds[size]["with"]) for size in arguments.blocks[:2])
    report("whatif_cost", {**rows, "largest over smallest pool": large / small})


def _spread(values: list[float]) -> dict[str, float]:
    return {"least": min(values), "median": median(values)}


if __name__ == "__main__":
    main()
