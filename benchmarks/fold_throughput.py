"""Block events that all folds of an engine take a second, and what a pool's size does to them.

    python -m benchmarks.fold_throughput [--events 400000] [--largest 1000000]

One block named in one event is a block event. The folds are those of a page with everything on, run
as the fold thread runs them; CPU time of the thread, so that a busy machine does not count, median
over repetitions. Streams: conversations through our engine's scheduler and pool, with shared
prefixes, evictions and preemptions; and steady decode of 512 sequences (that of fold_cost). Then
content that is always new in pools of a thousand blocks and more: time a block event once the pool
is full, and memory a block when it has just been filled. Prints one JSON line.
"""

import argparse
import gc
import tracemalloc
from statistics import median

from benchmarks.engine_stream import Recording, block_events, churn
from benchmarks.fold_cost import Replay, Stream, hello
from benchmarks.report import report, thread_ns
from kvscope_events.events import Batch
from kvscope_exporter.catalogue import COMPAT_SETS
from kvscope_exporter.clock import Clock
from kvscope_exporter.targets.target import Target

TARGET_RATE = 1_000_000
TARGET_GROWTH = 1.5
REPETITIONS = 5
RUNNING = 64
POOL_BLOCKS = 6_000
CHURN_EVENTS = 200_000
BLOCKS_EACH = 64


class Folding:
    """A target with everything on, and the CPU time that its folds have taken."""

    def __init__(self) -> None:
        self._source = Replay()
        self.target = Target(self._source, compat=COMPAT_SETS, clock=Clock())

    def seconds(self, batches: list[Batch]) -> float:
        """CPU time of this thread for these."""
        self._source.queue.extend(batches)
        spent = thread_ns(self._drain) / 1e9
        errors = self.target.pipeline.errors
        assert not any(errors.values()), errors
        return spent

    def _drain(self) -> None:
        while self._source.queue:
            self.target.pipeline.drain()

    def shares(self) -> dict[str, float]:
        """Share of the time by fold, the largest first."""
        spent = self.target.pipeline.spent_seconds
        whole = sum(spent.values())
        ordered = sorted(spent.items(), key=lambda item: -item[1])
        return {name: seconds / whole for name, seconds in ordered}


def throughput(batches: list[Batch]) -> dict[str, object]:
    """Median rate, and where the time goes."""
    count = block_events(batches)
    rates, shares = [], {}
    for _ in range(REPETITIONS):
        folding = Folding()
        gc.collect()
        rates.append(count / folding.seconds(batches))
        shares = folding.shares()
    return {
        "block_events": count,
        "batches": len(batches),
        "per_second": median(rates),
        "fastest": max(rates),
        "shares": shares,
    }


def decode_stream(wanted: int) -> list[Batch]:
    stream = Stream(512)
    batches: list[Batch] = []
    count = 0
    while count < wanted:
        batch = stream.batch()
        batches.append(batch)
        count += block_events([batch])
    first, *rest = batches
    events = [hello(), *first.events]
    return [Batch(first.seq, first.time_ns, events, first.arrived_ns, first.wall_ns), *rest]


def grown(num_blocks: int) -> dict[str, float]:
    """Time a block event in a full pool, and memory a block right after it was filled."""
    stream = churn(num_blocks, BLOCKS_EACH)
    filling = next(stream)
    folding = Folding()
    gc.collect()
    tracemalloc.start()
    folding.seconds(filling)
    gc.collect()
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del filling
    times = []
    warm = 0
    while warm < CHURN_EVENTS // 2:
        batches = next(stream)
        warm += block_events(batches)
        folding.seconds(batches)
    for _ in range(REPETITIONS):
        batches, count = [], 0
        while count < CHURN_EVENTS:
            batches += next(stream)
            count = block_events(batches)
        times.append(folding.seconds(batches) / count * 1e9)
    return {"bytes_per_block": memory / num_blocks, "ns_per_block_event": median(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--largest", type=int, default=1_000_000)
    arguments = parser.parse_args()
    streams = {
        "conversations": Recording(POOL_BLOCKS, RUNNING).batches(arguments.events),
        "decode of 512": decode_stream(arguments.events),
    }
    rows: dict[str, object] = {name: throughput(batches) for name, batches in streams.items()}
    streams.clear()
    sizes = {size: grown(size) for size in (1_000, 100_000, arguments.largest)}
    small, large = sizes[1_000], sizes[arguments.largest]
    growth = {key: large[key] / small[key] for key in small}
    rows |= {f"{size:,} blocks": found for size, found in sizes.items()}
    rows["largest over smallest"] = growth | {"target": TARGET_GROWTH}
    report("fold_throughput", rows, target_rate=TARGET_RATE)


if __name__ == "__main__":
    main()
