"""Cost of folding per engine step: `python -m benchmarks.fold_cost [--steps N]`.

Steady decode of 1, 32 and 512 sequences on a real event stream: every step emits one token per
sequence; a block fills every 16 tokens of a sequence, spread over the steps; after 256 tokens it
ends, its blocks are evicted and another begins. The engine keeps no blocks of ended requests, but
in one more line for the ledger, which then has to know whose each block is. CPU time of the thread,
so that a busy machine does not count; prints medians over repetitions, and one JSON line.
"""

import argparse
from collections import deque
from collections.abc import Callable
from functools import partial
from statistics import median

import msgspec

from benchmarks.engine_stream import HELLO
from benchmarks.report import repeated, report, thread_ns
from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    EngineEvent,
    FirstToken,
    Hello,
    PoolCreated,
    PrefixLookup,
    RequestArrived,
    RequestFinished,
    RequestScheduled,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.clock import Clock
from kvscope_exporter.sources.attachments import SourceKind
from kvscope_exporter.sources.pipeline import CHUNK_BATCHES, Pipeline
from kvscope_exporter.state import (
    Cache,
    Churn,
    DeviceMemory,
    EventCounts,
    Exhaustion,
    Fold,
    Latency,
    Ledger,
    Preemption,
    Requests,
    Steps,
    Vllm,
)

BLOCK_SIZE = 16
PROMPT_BLOCKS = 8
OUTPUT_TOKENS = 256
STEP_NS = 20_000_000
REPETITIONS = 7
SEQUENCES = (1, 32, 512)

FOLDS: tuple[Callable[[], Fold], ...] = (
    *(Ledger, Churn, Cache, Preemption, Requests, Latency, Steps, Exhaustion, DeviceMemory),
    *(EventCounts, Vllm),
)


class _Sequence:
    """A sequence in decode, the only one of its request: its blocks, and tokens written so far."""

    def __init__(self, number: int, blocks: list[int], tokens: int) -> None:
        self.number = number
        self.blocks = blocks
        self.tokens = tokens


class Stream:
    """Makes one batch per step; consistent with a pool, so that the ledger stays balanced."""

    def __init__(self, num_sequences: int) -> None:
        blocks_each = PROMPT_BLOCKS + OUTPUT_TOKENS // BLOCK_SIZE + 1
        self.num_blocks = (num_sequences + 1) * blocks_each
        self._free = deque(range(self.num_blocks))
        self._next = 0
        self._seq = 0
        self._first_tokens: list[int] = []
        self._events: list[EngineEvent] = [PoolCreated(self.num_blocks, BLOCK_SIZE, 0)]
        self._running = [self._admit() for _ in range(num_sequences)]
        for index, sequence in enumerate(self._running):  # not all at the same place in a block
            sequence.tokens += index % BLOCK_SIZE

    def batch(self) -> Batch:
        """The next step."""
        events, emitted = self._events, []
        for index, sequence in enumerate(self._running):
            sequence.tokens += 1
            if sequence.tokens % BLOCK_SIZE == 0:
                self._grow(sequence)
            emitted.append(sequence.number)
            if sequence.tokens >= PROMPT_BLOCKS * BLOCK_SIZE + OUTPUT_TOKENS:
                self._finish(sequence)
                self._running[index] = self._admit()
        held = sum(len(sequence.blocks) for sequence in self._running)
        filled = sum(sequence.tokens for sequence in self._running)
        events.append(
            StepCompleted(
                STEP_NS, len(emitted), 0, 0, 0, len(emitted), filled, held, 0,
                self.num_blocks - held, emitted, self._first_tokens, len(emitted), 0,
            )
        )  # fmt: skip
        now_ns = self._seq * STEP_NS
        batch = Batch(self._seq, now_ns, events, now_ns, now_ns)
        self._seq += 1
        self._events = []
        self._first_tokens = []
        return batch

    def _admit(self) -> _Sequence:
        number, self._next = self._next, self._next + 1
        blocks = [self._free.popleft() for _ in range(PROMPT_BLOCKS + 1)]
        hashes = [self._name(number, index) for index in range(PROMPT_BLOCKS)]
        tokens = PROMPT_BLOCKS * BLOCK_SIZE + 1
        self._events += [
            RequestArrived(number, tokens, OUTPUT_TOKENS),
            SequenceAdded(number, number, tokens, OUTPUT_TOKENS),
            PrefixLookup(number, tokens, hashes, 0),
            BlocksAllocated(number, blocks.copy(), "prefill"),
            RequestScheduled(number, 1_000_000, 0),
            BlocksCached(number, blocks[:PROMPT_BLOCKS], hashes, None),
            FirstToken(number, STEP_NS),
        ]
        self._first_tokens.append(number)
        return _Sequence(number, blocks, tokens)

    def _grow(self, sequence: _Sequence) -> None:
        block = self._free.popleft()
        self._events += [
            BlocksAllocated(sequence.number, [block], "decode"),
            BlocksCached(
                sequence.number,
                [sequence.blocks[-1]],
                [self._name(sequence.number, len(sequence.blocks) - 1)],
                b"",
            ),
        ]
        sequence.blocks.append(block)

    def _finish(self, sequence: _Sequence) -> None:
        *full, last = sequence.blocks
        full.reverse()
        names = [self._name(sequence.number, index) for index in reversed(range(len(full)))]
        self._events += [
            BlocksReleased(sequence.number, full, [last], [], "finished"),
            BlocksEvicted(full, names, "capacity"),
            SequenceFinished(
                sequence.number, sequence.number, "length", PROMPT_BLOCKS * BLOCK_SIZE + 1,
                OUTPUT_TOKENS, OUTPUT_TOKENS, 0, OUTPUT_TOKENS * STEP_NS, 1_000_000, STEP_NS,
                OUTPUT_TOKENS * STEP_NS,
            ),
            RequestFinished(
                sequence.number, "length", PROMPT_BLOCKS * BLOCK_SIZE + 1, OUTPUT_TOKENS,
                OUTPUT_TOKENS, 0, OUTPUT_TOKENS * STEP_NS, 1_000_000,
            ),
        ]  # fmt: skip
        self._free.extend(sequence.blocks)

    @staticmethod
    def _name(number: int, index: int) -> bytes:
        return number.to_bytes(8, "little") + index.to_bytes(8, "little")


class Replay:
    """A source that brings recorded batches, all known, none lost."""

    kind: SourceKind = "wire"
    endpoint = ""
    session = "benchmark"
    up = state_known = True
    superseded = False
    batches_dropped = gaps = 0
    last_message_ns: int | None = None

    def __init__(self) -> None:
        self.queue: deque[Batch] = deque()
        self.decode_errors: dict[str, int] = {}

    def take(self) -> tuple[Batch, int] | None:
        return (self.queue.popleft(), 0) if self.queue else None

    def request_snapshot(self) -> None:
        pass

    def wait(self, timeout: float) -> bool:
        return bool(self.queue)

    def wake(self) -> None:
        pass

    def close(self) -> None:
        self.queue.clear()


def hello(*, keeps_blocks: bool = False) -> Hello:
    return msgspec.structs.replace(HELLO, server="vllm", keeps_blocks=keeps_blocks)


def _folds() -> list[Fold]:
    folds = [make() for make in FOLDS]
    for fold in folds:
        fold.apply(hello())
    return folds


def _ledger_of_connector() -> Ledger:
    ledger = Ledger()
    ledger.apply(hello(keeps_blocks=True))
    return ledger


def _pipeline_us(batches: list[Batch], chunk: int) -> float:
    """Whole pipeline, `chunk` batches per drain, as the fold thread would find them."""
    source = Replay()
    folds = _folds()
    pipeline = Pipeline(source, lambda: folds, Clock())

    def drain() -> None:
        for start in range(0, len(batches), chunk):
            source.queue.extend(batches[start : start + chunk])
            pipeline.drain()

    spent = thread_ns(drain)
    assert not any(pipeline.errors.values()), pipeline.errors
    assert not any(fold.imbalance for fold in folds if isinstance(fold, Ledger))
    return spent / len(batches) / 1e3


def _fold_us(fold: Fold, batches: list[Batch]) -> float:
    return thread_ns(partial(deque, map(fold.on_batch, batches), 0)) / len(batches) / 1e3


def measure(num_sequences: int, steps: int) -> dict[str, float]:
    """Median microseconds per step: per fold, and of the pipeline one or many batches a drain."""
    stream = Stream(num_sequences)
    batches = [stream.batch() for _ in range(steps)]

    def pipeline(chunk: int) -> float:
        return repeated(lambda: _pipeline_us(batches, chunk), REPETITIONS)

    result = {"pipeline, one batch a drain": pipeline(1), "pipeline": pipeline(CHUNK_BATCHES)}
    samples = [[_fold_us(fold, batches) for fold in _folds()] for _ in range(REPETITIONS)]
    for fold, costs in zip(_folds(), zip(*samples, strict=True), strict=True):
        result[fold.name] = median(costs)
    result["ledger, with a connector"] = repeated(
        lambda: _fold_us(_ledger_of_connector(), batches), REPETITIONS
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    steps = parser.parse_args().steps
    found = {count: measure(count, max(200, steps // (1 + count // 64))) for count in SEQUENCES}
    rows = {name: {str(count): found[count][name] for count in found} for name in found[1]}
    report("fold_cost", rows, repetitions=REPETITIONS, unit="µs a step by sequences")


if __name__ == "__main__":
    main()
