"""Cost of the wire for engine and reader: `python -m benchmarks.wire_cost [--steps N]`.

The same stream as fold_cost, of 32 and 512 sequences in decode. On the engine's side: a step's
events and its flush with and without a publisher, and what the publisher's thread takes to encode
and send a batch to a reader that never reads, so that messages are dropped. On the reader's:
receiving, decoding and folding on one core, in block events a second; one block event is one block
named in an event. CPU time of threads, and of the process that reads, so that a busy machine does
not count; prints medians over repetitions, and one JSON line.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from benchmarks.engine_stream import block_events
from benchmarks.fold_cost import FOLDS, Stream, hello
from benchmarks.report import repeated, report, thread_ns
from kvscope_events.bus import EventBus
from kvscope_events.events import Batch
from kvscope_events.wire.publisher import WirePublisher
from kvscope_events.wire.subscriber import WireSubscriber
from kvscope_exporter.clock import Clock
from kvscope_exporter.sources.listener import Listener
from kvscope_exporter.sources.pipeline import Pipeline

REPETITIONS = 7
TARGET_US = {32: 5.0, 512: 40.0}
TARGET_RATE = 300_000
BATCHES_A_TICK = 20
"""A publisher that wakes 50 times a second finds this many from an engine of 1,000 steps a
second."""


class _MeasuredPublisher(WirePublisher):
    """Runs its rounds on the caller's thread, so that their CPU time can be measured."""

    def round(self) -> None:
        self._tick()


def stream(num_sequences: int, steps: int) -> list[Batch]:
    """Steps of fold_cost's stream, introduced as the wire demands."""
    source = Stream(num_sequences)
    first, *rest = (source.batch() for _ in range(steps))
    return [Batch(0, first.time_ns, [hello(), *first.events], first.wall_ns, 0), *rest]


def _emit(bus: EventBus, batch: Batch) -> None:
    for event in batch.events:
        bus.emit(event)
    bus.flush()


def flush_us(batches: list[Batch], endpoint: str | None) -> float:
    """Cost on the step's thread: emit a batch's events and flush; the publisher runs beside it."""
    bus = EventBus()
    bus.subscribe(queue_batches=64)  # the page in the same process
    publisher = WirePublisher(bus, endpoint) if endpoint is not None else None
    if publisher is not None:
        publisher.start()
    costs = []
    for number, batch in enumerate(batches):
        costs.append(thread_ns(partial(_emit, bus, batch)))
        if number % BATCHES_A_TICK == 0:
            time.sleep(0.001)  # the publisher's turn
    if publisher is not None:
        publisher.stop()
    return median(costs) / 1e3


def publish_us(batches: list[Batch], endpoint: str) -> float:
    """Cost of a batch on the publisher's thread: take, encode, keep, send or drop."""
    bus = EventBus()
    publisher = _MeasuredPublisher(bus, endpoint)
    reader = socket.socket(socket.AF_UNIX)  # connected, and never read
    reader.connect(endpoint.removeprefix("ipc://"))
    publisher.round()
    spent = 0
    for start in range(0, len(batches), BATCHES_A_TICK):
        for batch in batches[start : start + BATCHES_A_TICK]:
            _emit(bus, batch)
        spent += thread_ns(publisher.round)
    reader.close()
    publisher.stop()
    assert publisher.batches_lost == 0
    return spent / len(batches) / 1e3


def read_rate(num_sequences: int, steps: int, endpoint: str, *, fold: bool) -> float:
    """Block events a CPU second of this process, which only reads; a second one publishes."""
    command = [sys.executable, "-m", "benchmarks.wire_cost", "--publish", endpoint]
    command += ["--sequences", str(num_sequences), "--steps", str(steps)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        num_block_events = int(other.stdout.readline())
        began = time.process_time_ns()
        source = WireSubscriber(endpoint)
        counter = _Counter()
        listeners: list[Listener] = [counter, *(make() for make in FOLDS if fold)]
        pipeline = Pipeline(source, lambda: listeners, Clock())
        pipeline.start()
        while counter.batches < steps:
            time.sleep(0.01)
        spent = time.process_time_ns() - began
        pipeline.stop()
        source.close()
        assert source.batches_dropped == 0
        other.communicate("")
    return num_block_events / spent * 1e9


class _Counter:
    """Counts batches."""

    name = "counter"

    def __init__(self) -> None:
        self.batches = 0

    def on_batch(self, batch: Batch) -> None:
        self.batches += 1

    num_pending = 0
    wants_snapshot = False

    def on_gap(self) -> None:
        raise AssertionError("the benchmark lost batches")


def publish(batches: list[Batch], endpoint: str) -> None:
    """The other process: all batches in the ring, served until its input ends."""
    bus = EventBus()
    publisher = WirePublisher(bus, endpoint, queue_batches=len(batches), replay_bytes=1 << 30)
    for batch in batches:
        _emit(bus, batch)
    publisher.start()
    while publisher.ring_bytes == 0:
        time.sleep(0.01)
    time.sleep(1)
    print(block_events(batches), flush=True)
    sys.stdin.read()
    publisher.stop()


def measure(num_sequences: int, steps: int) -> dict[str, float]:
    """Medians; microseconds a step, and block events a second."""
    batches = stream(num_sequences, steps)

    def several(one: Callable[[str], float], repetitions: int = REPETITIONS) -> float:
        def fresh() -> float:
            with tempfile.TemporaryDirectory() as folder:
                return one(f"ipc://{folder}/engine.sock")

        return repeated(fresh, repetitions)

    def read(fold: bool) -> float:
        return several(lambda endpoint: read_rate(num_sequences, steps, endpoint, fold=fold), 3)

    off = several(lambda _: flush_us(batches, None))
    on = several(lambda endpoint: flush_us(batches, endpoint))
    thread = several(lambda endpoint: publish_us(batches, endpoint))
    return {
        "step thread, no publisher, us": off,
        "step thread, publisher, us": on,
        "publisher thread, us": thread,
        "the wire in all, us": on - off + thread,
        "target, us": TARGET_US[num_sequences],
        "block events a step": block_events(batches) / len(batches),
        "received and decoded a second": read(False),
        "received, decoded and folded a second": read(True),
        "target, a second": TARGET_RATE,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--sequences", type=int, default=32, help=argparse.SUPPRESS)
    parser.add_argument("--publish", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.publish is not None:
        publish(stream(arguments.sequences, arguments.steps), arguments.publish)
        return
    found = {n: measure(n, arguments.steps // (1 + n // 64)) for n in TARGET_US}
    rows = {name: {str(n): found[n][name] for n in found} for name in found[32]}
    report("wire_cost", rows, repetitions=REPETITIONS)


if __name__ == "__main__":
    main()
