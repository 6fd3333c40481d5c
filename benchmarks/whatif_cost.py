"""Cost of the hits at other pool sizes: `python -m benchmarks.whatif_cost [TRACE.jsonl]`.

TRACE: a trace of Mooncake's form, a list of block ids (`hash_ids`) a line; without one, made-up
conversations. Nanoseconds a queried block: of the stack of runs alone, horizon four times a pool of
4,000 blocks; in turn with it of the textbook's stack, one slot of a Fenwick tree a block, whose
distances have to be the same; of the whole cache fold on a pool's events with the question answered
and with a pool for which it is not (a sliding window), in turn; the same in a pool of a million
blocks. Bytes a tracked block. CPU time of the thread, the least and the median of repetitions, and
one JSON line.
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

from benchmarks.engine_stream import taken
from benchmarks.report import environment
from engine.block_pool import BlockPool
from exporter.fold import Cache
from exporter.fold.cache.run_stack import RunStack
from kvscope_events.bus import EventBus
from kvscope_events.events import Batch, CacheGroup, PoolCreated, PrefixLookup

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


class BlockStack:
    """Olken's: a slot for each release of a block, and a Fenwick tree of the slots still in use."""

    def __init__(self, releases: int) -> None:
        self._tree = [0] * (releases + 1)
        self._slot_of: dict[bytes, int] = {}
        self._newest = 0

    def take(self, path: list[bytes]) -> list[int]:
        """The blocks above each leading block that is here, before any of them is removed."""
        above = []
        for name in path:
            slot = self._slot_of.get(name)
            if slot is None:
                break
            above.append(len(self._slot_of) - self._up_to(slot))
        for name in path[: len(above)]:
            self._add(self._slot_of.pop(name), -1)
        return above

    def push(self, path: list[bytes]) -> None:
        for name in reversed(path):
            self._newest += 1
            self._slot_of[name] = self._newest
            self._add(self._newest, 1)

    def _add(self, slot: int, change: int) -> None:
        while slot < len(self._tree):
            self._tree[slot] += change
            slot += slot & -slot

    def _up_to(self, slot: int) -> int:
        used = 0
        while slot:
            used += self._tree[slot]
            slot &= slot - 1
        return used


def stack_ns(paths: Paths) -> dict[str, list[float]]:
    """Lookups that are released at once."""
    queried, horizon = sum(map(len, paths)), 4 * POOL_BLOCKS
    samples: dict[str, list[float]] = {"stack": [], "stack of single blocks": []}
    for _ in range(REPETITIONS):
        for key, of_repetitions in samples.items():
            stack: RunStack | BlockStack
            stack = RunStack(horizon) if key == "stack" else BlockStack(queried)
            gc.collect()
            began = time.thread_time_ns()
            for path in paths:
                stack.take(path)
                stack.push(path)
            of_repetitions.append((time.thread_time_ns() - began) / queried)
    return samples


def assert_same_distances(paths: Paths) -> None:
    """Up to the horizon, beyond which the stack of runs may know more or less."""
    horizon = 4 * POOL_BLOCKS
    runs, blocks = RunStack(horizon), BlockStack(sum(map(len, paths)))
    for path in paths:
        of_runs = [above + i for above, count in runs.take(path) for i in range(count)]
        of_blocks = blocks.take(path)
        assert [n for n in of_runs if n < horizon] == [n for n in of_blocks if n < horizon]
        runs.push(path)
        blocks.push(path)


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

    assert_same_distances(paths)
    of_stacks = stack_ns(paths)
    for key, of_stack in of_stacks.items():
        show(key, of_stack)
    ratio = statistics.median(a / b for a, b in zip(*of_stacks.values(), strict=True))
    result["ratio_to_single_blocks"] = ratio
    print(f"{'stack over stack of single blocks':40} median {ratio:.2f}")
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
