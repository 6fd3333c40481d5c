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
import json
import statistics
import time
import tracemalloc

from benchmarks.engine_stream import HELLO, Recording, block_events, churn
from benchmarks.fold_cost import Replay, Stream
from benchmarks.report import environment
from exporter.catalogue import COMPAT_SETS
from exporter.clock import Clock
from exporter.watched.target import Target
from kvscope_events.events import Batch, Hello

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
        began = time.thread_time_ns()
        while self._source.queue:
            self.target.pipeline.drain()
        spent = (time.thread_time_ns() - began) / 1e9
        errors = self.target.pipeline.errors
        assert not any(errors.values()), errors
        return spent

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
        "per_second": statistics.median(rates),
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
    first = batches[0]
    hello: list[Hello] = [HELLO]
    batches[0] = Batch(
        first.seq, first.time_ns, [*hello, *first.events], first.arrived_ns, first.wall_ns
    )
    return batches


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
    return {"bytes_per_block": memory / num_blocks, "ns_per_block_event": statistics.median(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--largest", type=int, default=1_000_000)
    arguments = parser.parse_args()
    streams = {
        "conversations": Recording(POOL_BLOCKS, RUNNING).batches(arguments.events),
        "decode of 512": decode_stream(arguments.events),
    }
    rows = {}
    for name, batches in streams.items():
        row = rows[name] = throughput(batches)
        shares = row["shares"]
        assert isinstance(shares, dict)
        parts = "  ".join(f"{fold} {share:.0%}" for fold, share in list(shares.items())[:6])
        print(f"{name:15}  {row['per_second']:>12,.0f} block events a second  {parts}")
    streams.clear()
    sizes = {}
    for size in (1_000, 100_000, arguments.largest):
        found = sizes[size] = grown(size)
        cells = "  ".join(f"{key} {value:8.1f}" for key, value in found.items())
        print(f"{size:9,} blocks  {cells}")
    small, large = sizes[1_000], sizes[arguments.largest]
    growth = {key: large[key] / small[key] for key in small}
    print(f"growth {growth}, target {TARGET_GROWTH}; rate's target {TARGET_RATE:,}")
    print(
        json.dumps(
            {"environment": environment(), "streams": rows, "pools": sizes, "growth": growth}
        )
    )


if __name__ == "__main__":
    main()
