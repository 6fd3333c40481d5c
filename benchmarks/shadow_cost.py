"""Cost and error of simulated pools of several groups: `python -m benchmarks.shadow_cost`.

Conversations below a few system prompts, 50 requests a second, in a pool of full attention and two
windows. Nanoseconds of CPU time a looked-up block and size, with all prompts; the share of a core,
with all prompts and with the share of roots that is chosen by itself; and for fixed shares, how
many points the hit rate at each size differs from that of all prompts, in the second half of the
stream. Figures are medians over seeds, and one JSON line.
"""

import argparse
import gc
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from math import isinf
from random import Random
from statistics import median

from benchmarks.report import report, thread_ns
from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    BlocksReleased,
    CacheGroup,
    EngineEvent,
    PoolCreated,
    PrefixLookup,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
    StepScheduled,
)
from kvscope_events.names import CONTENT_BYTES, suffix_of
from kvscope_exporter.state.simulation.budget import Budget
from kvscope_exporter.state.simulation.coordinator import Coordinator
from kvscope_exporter.state.simulation.groups import layers_of
from kvscope_exporter.state.simulation.simulation import SCALES, Simulation

SIZE = 16
GROUPS = [
    CacheGroup("sliding_window", SIZE, 1024),
    CacheGroup("sliding_window", SIZE, 1024),
    CacheGroup("full_attention", SIZE),
]
FULL = 2
USABLE = 12_000
REQUESTS = 5_000
REQUEST_NS = 10**9 // 50
RUNNING = 16
SEEDS = 3
SHARES = (1 / 2, 1 / 4, 1 / 8)
SYSTEMS = 4
SYSTEM_BLOCKS = 40
TURN_BLOCKS = 24
CONVERSATIONS = 200
LONGEST = 250
STEP_TOKENS = 1 << 14


def prompts(seed: int) -> Iterator[list[bytes]]:
    """Contents of the blocks of one prompt after the other."""
    random, fresh = Random(seed), 0

    def more(count: int) -> list[bytes]:
        return [random.randbytes(CONTENT_BYTES) for _ in range(count)]

    systems = [more(SYSTEM_BLOCKS) for _ in range(SYSTEMS)]
    open_: list[list[bytes]] = []
    for _ in range(REQUESTS):
        while len(open_) < CONVERSATIONS:
            open_.append(random.choice(systems))
            fresh += 1
        # Mostly one that was lately gone on with.
        path = open_.pop(int(CONVERSATIONS * random.random() ** 2))
        path = path + more(random.randrange(1, TURN_BLOCKS))
        if len(path) < LONGEST and random.random() < 0.8:
            open_.append(path)
        yield path


class Stream:
    """Batches of a pool that is served by the same rules as vLLM's."""

    def __init__(self, seed: int) -> None:
        self.num_blocks = 0  # looked up
        self.batches: list[Batch] = []
        created = PoolCreated(USABLE + 1, SIZE, 0, 1, groups=GROUPS, retention=0)
        pool = Coordinator(USABLE, layers_of(GROUPS, 0), SIZE)
        self._add([created])
        for number, path in enumerate(prompts(seed), start=1):
            events: list[EngineEvent] = []
            if number > RUNNING:
                pool.end(number - RUNNING)
                events += _ended(number - RUNNING)
            tokens = len(path) * SIZE + 1
            found = pool.admit(number, path, tokens, tokens, len(path))
            chunk = tokens - found * SIZE
            while pool.owes(number):
                assert pool.compute(number, STEP_TOKENS, 0)
            names = [name + suffix_of(FULL) for name in path]
            events += [
                SequenceAdded(number, number, tokens, 1),
                PrefixLookup(number, tokens, names, found),
                BlocksAllocated(number, [], "prefill", 0),
                StepScheduled([number], [chunk], STEP_TOKENS - chunk),
                StepCompleted(1, 1, 0, 0, chunk, 0, None, 0, 0, 0, [number], [number], 1, 0),
            ]
            self.num_blocks += len(path)
            self._add(events)

    def _add(self, events: list[EngineEvent]) -> None:
        seq = len(self.batches)
        self.batches.append(Batch(seq, seq * REQUEST_NS, events))


def _ended(number: int) -> list[EngineEvent]:
    return [
        BlocksReleased(number, [], [], [], "finished"),
        SequenceFinished(number, number, "length", 1, 1, 1, 0, 1, 1, 1, 1),
    ]


class Fixed(Budget):
    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def at(self, time_ns: int, usable_blocks: int) -> bool:
        return False


def _give(simulation: Simulation, batch: Batch) -> None:
    for event in batch.events:
        simulation.take(event)
    simulation.at(batch.time_ns)


class Run:
    """A simulation that has taken a stream; a fixed share, or the one that it chooses."""

    def __init__(self, stream: Stream, share: float | None) -> None:
        simulation = Simulation(Budget() if share is None else Fixed(share))
        self.shares: list[float] = []
        gc.collect()
        spent = 0
        for batch in stream.batches:
            taken = thread_ns(partial(_give, simulation, batch))
            spent += taken
            simulation.spend(taken)
            self.shares.append(simulation.share)
        self.seconds = spent / 1e9
        self.of_core = spent / (len(stream.batches) * REQUEST_NS)
        half = len(stream.batches) * REQUEST_NS / 2e9
        self.agrees = simulation.agrees()
        curve = simulation.curve(half)
        self.rates = {
            point.scale: point.hit_blocks / point.queried_blocks
            for point in (curve.points if curve is not None else ())
            if not isinf(point.scale) and not point.is_lower_bound
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds = range(parser.parse_args().seeds)
    costs: dict[str, list[float]] = defaultdict(list)
    errors: dict[float, list[dict[float, float]]] = {share: [] for share in SHARES}
    agreed = dict.fromkeys(SHARES, 0)
    for seed in seeds:
        stream = Stream(seed)
        every, chosen = Run(stream, 1), Run(stream, None)
        sized = stream.num_blocks * (len(SCALES) + 1)
        costs["ns a looked-up block and size"].append(every.seconds * 1e9 / sized)
        costs["percent of a core, all prompts"].append(100 * every.of_core)
        costs["percent of a core, chosen share"].append(100 * chosen.of_core)
        costs["chosen share, at last"].append(chosen.shares[-1])
        for share in SHARES:
            one = Run(stream, share)
            costs[f"percent of a core, a share of {share:g}"].append(100 * one.of_core)
            agreed[share] += one.agrees
            off = {scale: 100 * (rate - every.rates[scale]) for scale, rate in one.rates.items()}
            errors[share].append(off)
    rows: dict[str, object] = {row: median(values) for row, values in costs.items()}
    for share, found in errors.items():
        points = [abs(off) for one in found for off in one.values()]
        row = {"agrees": agreed[share], "points off, at most": max(points, default=None)}
        rows[f"a share of {share:g}, of {len(seeds)} runs"] = row
    report("shadow_cost", rows, points=errors)


if __name__ == "__main__":
    main()
