"""Cost of following a fleet: `python -m benchmarks.fleet_cost [--runs N]`.

Conversations below a few system prompts are placed by turns on 8 and on 64 replicas; each replica's
events go through its projection, and the answers are folded as `kvscope fleet` does, once a second
of the stream. Nanoseconds of CPU time a looked-up block, 8 and 64 replicas by turns in one process,
with lookups, names that came and went, and the curve of a shared tier; bytes a resident name beyond
the names themselves; bytes of the projection over those of the whole stream; and the projection's
share of a core in a sidecar at 50 requests a second.
"""

import argparse
import gc
import time
import tracemalloc
from collections import OrderedDict
from collections.abc import Sequence
from statistics import median

import msgspec

from benchmarks.report import alternate, ratios, report
from benchmarks.shadow_cost import prompts
from exporter.fleet.fleet import Fleet
from exporter.fold.fleet import Holders
from exporter.fold.fleet.projected import VERSION, Document, Moment, Part
from exporter.fold.fleet.projection import Projection
from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    EngineEvent,
    PoolCreated,
    PrefixLookup,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_events.wire.frame import encode_batch

SIZE = 16
ALL_BLOCKS = 64_000
"""The sum over all pools, so that as many names are resident with few replicas as with many."""
REPLICAS = (8, 64)
RATE = 50
"""Requests a second and replica."""
OUTPUT_STEPS = 33
"""Decode steps a second, each a batch of its own."""
_Path = list[bytes]


class Pool:
    """A pool of LRU blocks that emits its events; one request at a time."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.held: OrderedDict[bytes, int] = OrderedDict()
        self.free = list(range(blocks, 0, -1))
        self.sequence = 0

    def serve(self, path: _Path) -> list[EngineEvent]:
        self.sequence += 1
        number = self.sequence
        found = next((i for i, name in enumerate(path) if name not in self.held), len(path))
        new = path[found:]
        short = len(new) - len(self.free)
        for name in path[:found]:
            self.held.move_to_end(name)
        gone = [self.held.popitem(last=False) for _ in range(short)]
        shared = [self.held[name] for name in path[:found]]
        self.free += [block for _, block in gone]
        blocks = [self.free.pop() for _ in new]
        for name, block in zip(reversed(new), reversed(blocks), strict=True):
            self.held[name] = block
        events: list[EngineEvent] = [
            SequenceAdded(number, number, len(path) * SIZE + 1, 1),
            PrefixLookup(number, len(path) * SIZE + 1, path, found),
        ]
        if shared:
            events.append(BlocksShared(number, shared, "prefix_hit"))
        if gone:
            names, evicted = [name for name, _ in gone], [block for _, block in gone]
            events.append(BlocksEvicted(evicted, names, "capacity"))
        if blocks:
            events += [
                BlocksAllocated(number, blocks, "prefill"),
                BlocksCached(number, blocks, new, path[found - 1] if found else None),
            ]
        used = [*shared, *blocks]
        events += [
            BlocksReleased(number, used[::-1], [], [], "finished"),
            SequenceFinished(number, number, "length", len(path) * SIZE, 9, 9, 0, 1, 1, 1, 1),
        ]
        return events


class Streams:
    """Every replica's batches, by seconds of the stream."""

    def __init__(self, replicas: int, paths: Sequence[_Path]) -> None:
        pools = [Pool(ALL_BLOCKS // replicas) for _ in range(replicas)]
        self.asked = sum(map(len, paths))
        per_second = RATE * replicas
        self.seconds = -(-len(paths) // per_second)
        self.created = [PoolCreated(pool.blocks + 1, SIZE, 1, 1) for pool in pools]
        self.batches: list[list[list[Batch]]] = [
            [[] for _ in range(self.seconds)] for _ in range(replicas)
        ]
        for number, path in enumerate(paths):
            replica, second = number % replicas, number // per_second
            wall_ns = number * 10**9 // per_second
            batches = self.batches[replica][second]
            batches.append(Batch(0, wall_ns, [*pools[replica].serve(path), _step()], wall_ns))
        for of_replica in self.batches:
            for second, batches in enumerate(of_replica):
                at_ns = second * 10**9
                batches += [Batch(0, at_ns, [_step()], at_ns) for _ in range(OUTPUT_STEPS)]


def _step() -> StepCompleted:
    emitted = list(range(8))
    return StepCompleted(9_000_000, 8, 0, 0, 64, 8, 900, 100, 900, 0, emitted, [], 8, 0)


def part_of(
    session: str,
    projection: Projection,
    num_blocks: int,
    moments: list[Moment],
    *,
    is_gap: bool = False,
    held: bytes | None = None,
) -> Part:
    """One replica's part of a sidecar's answer."""
    return Part(
        server="",
        engine="0",
        model_name="model",
        session=session,
        kind="vllm",
        name_space="all",
        hash_algorithm="sha256",
        block_size=SIZE,
        bytes_per_block=1,
        num_blocks=num_blocks,
        next_seq=projection.next_seq,
        is_gap=is_gap,
        moments=moments,
        held=held,
    )


def answers(streams: Streams) -> tuple[list[list[Document]], float, float]:
    """Answers of each second, a sidecar a replica; CPU seconds and bytes of the projections."""
    projections = [Projection() for _ in streams.batches]
    asked = [projection.next_seq for projection in projections]
    for projection, created in zip(projections, streams.created, strict=True):
        projection.since(None)
        projection.on_batch(Batch(0, 0, [created]))
    spent, size = 0.0, 0
    seconds = []
    for second in range(streams.seconds):
        documents = []
        for number, projection in enumerate(projections):
            began = time.process_time()
            for batch in streams.batches[number][second]:
                projection.on_batch(batch)
            moments, _ = projection.since(asked[number])
            part = part_of(*(f"{number}", projection, streams.created[number].num_blocks, moments))
            document = Document(version=VERSION, wall_ns=0, parts=[part], unknown=[])
            body = msgspec.msgpack.encode(document)
            spent += time.process_time() - began
            asked[number] = projection.next_seq
            size += len(body)
            documents.append(msgspec.msgpack.decode(body, type=Document))
        seconds.append(documents)
    return seconds, spent, size


def fold_ns(seconds: Sequence[Sequence[Document]], asked: int) -> float:
    """CPU nanoseconds a looked-up block."""
    fleet = Fleet()
    gc.collect()
    began = time.process_time()
    for documents in seconds:
        fleet.fold([(f"{number}", document) for number, document in enumerate(documents)])
    return (time.process_time() - began) / asked * 1e9


def bytes_per_name(replicas: int, names: int) -> float:
    """Memory of who holds which name, with every second name on two replicas."""
    numbers = [hash(str(number)) for number in range(names)]
    tracemalloc.start()
    holders = Holders()
    slots = [holders.join() for _ in range(replicas)]
    for begin in range(0, names, 50):
        some = numbers[begin : begin + 50]
        holders.store(slots[begin // 50 % replicas], some)
        holders.store(slots[(begin // 50 + 1) % replicas], some[::2])
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    paths = [[name + bytes(4) for name in path] for path in prompts(0)]
    streams = {replicas: Streams(replicas, paths) for replicas in REPLICAS}
    rows: dict[str, object] = {}
    told = {}
    for replicas, of in streams.items():
        told[replicas], spent, size = answers(of)
        whole = sum(len(encode_batch(batch)) for r in of.batches for bs in r for batch in bs)
        rows[f"projection, {replicas} replicas"] = {
            "share of a core": spent / of.seconds / replicas,
            "bytes over the stream's": size / whole,
        }
    sides = {str(n): lambda _, n=n: fold_ns(told[n], streams[n].asked) for n in REPLICAS}
    few, many = alternate(sides, runs).values()
    rows["folding, ns a looked-up block"] = {
        **{str(n): median(each) for n, each in zip(REPLICAS, (few, many), strict=True)},
        **ratios(many, few),
    }
    rows["bytes a resident name"] = bytes_per_name(max(REPLICAS), 200_000)
    report("fleet_cost", rows)


if __name__ == "__main__":
    main()
