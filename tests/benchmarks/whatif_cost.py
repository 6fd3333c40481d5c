"""What the hits of other pool sizes cost: `python -m tests.benchmarks.whatif_cost [TRACE.jsonl]`.

TRACE: a trace of Mooncake's form, a list of block ids (`hash_ids`) a line; without one, made-up
conversations. Nanoseconds a queried block: of the stack of runs alone, horizon four times a pool of
4,000 blocks; of the whole cache fold on a pool's events with the question answered and with a pool
for which it is not (a sliding window), in turn; the same in a pool of a million blocks. Bytes a
tracked block. CPU time of the thread, the least and the median of repetitions, and one JSON line.
"""

import argparse
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random

from engine.block_pool import BlockPool
from exporter.fold import Cache
from exporter.fold.cache.run_stack import RunStack
from kvscope_events.bus import EventBus
from kvscope_events.events import Batch, CacheGroup, PoolCreated, PrefixLookup
from tests.benchmarks.engine_stream import taken
from tests.benchmarks.report import environment

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


def stack_ns(paths: Paths) -> list[float]:
    """Lookups that are released at once."""
    queried = sum(map(len, paths))
    samples = []
    for _ in range(REPETITIONS):
        stack = RunStack(4 * POOL_BLOCKS)
        gc.collect()
        began = time.thread_time_ns()
        for path in paths:
            stack.take(path)
            stack.push(path)
        samples.append((time.thread_time_ns() - began) / queried)
    return samples


def bytes_per_block(paths: Paths) -> float:
    """Of a stack that is as full as it gets, without the names, which others hold as well."""
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
            began = time.thread_time_ns()
            for batch in batches:
                fold.on_batch(batch)
            samples[key].append((time.thread_time_ns() - began) / queried)
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
    print(environment())
    result: dict[str, float] = {}

    def show(what: str, samples: list[float]) -> None:
        least, median = min(samples), statistics.median(samples)
        result[what] = least
        print(f"{what:40} least {least:6.0f}  median {median:6.0f}  ns a queried block")

    show("stack", stack_ns(paths))
    result["bytes_per_block"] = bytes_per_block(paths)
    print(f"{'stack':40} {result['bytes_per_block']:12.0f}  bytes a tracked block, without names")
    for size in arguments.blocks:
        samples = fold_ns(size, lambda: conversations(2))
        for key, of_fold in samples.items():
            show(f"cache fold {key} it, {size:,} blocks", of_fold)
        deltas = [a - b for a, b in zip(samples["with"], samples["without"], strict=True)]
        show(f"it alone, {size:,} blocks", deltas)
    small, large = (result[f"cache fold with it, {n:,} blocks"] for n in arguments.blocks[:2])
    print(f"largest over smallest pool: {large / small:.2f}")
    print(json.dumps({"environment": environment(), **result}))


if __name__ == "__main__":
    main()
