"""Cost of KV events for their reader: `python -m benchmarks.kv_events_cost [--messages N]`.

A warm pool of 100,000 blocks: each message stores 64 blocks of 16 tokens and removes as many that
were stored before, in one event a block (decoding sequences) or in one event for all (a prompt), as
maps and as arrays. Block events a CPU second of the thread that decodes and folds, with all folds
of such a target; the same with msgspec's plain objects in place of our decoder, as a ratio; and
through real sockets, with the CPU time of the reading thread as well. Medians; one JSON line.
"""

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from statistics import median

import msgspec

from benchmarks.report import alternate, report, thread_ns
from kvscope_events.events import Batch
from kvscope_exporter.clock import Clock
from kvscope_exporter.collect.parts import parts_of
from kvscope_exporter.sources.kv_events import KvEventsSource
from kvscope_exporter.sources.kv_events.decoder import DecodedMessage, Decoder
from kvscope_exporter.sources.pipeline import Pipeline
from kvscope_exporter.state import Folds
from tests.kv_events.dialects import BY_NAME, Dialect, Removed, Said, Stored
from tests.kv_events.publisher import Publisher

REPETITIONS = 7
BLOCKS = 64
BLOCK_SIZE = 16
POOL = 100_000
TARGET_RATE = 200_000


def messages(number_of: int, *, single: bool) -> Iterator[list[Said]]:
    """Messages of a pool that is full from the first one on, without its earlier content."""
    for number in range(number_of):
        first = POOL + number * BLOCKS
        new = range(first, first + BLOCKS)
        old = range(first - POOL, first - POOL + BLOCKS)
        if single:
            stored: list[Said] = [Stored((b,), b - 1, block_size=BLOCK_SIZE) for b in new]
            yield [*(Removed((b,)) for b in old), *stored]
        else:
            yield [Removed(tuple(old)), Stored(tuple(new), first - 1, block_size=BLOCK_SIZE)]


def filling(dialect: Dialect) -> list[bytes]:
    """Messages that fill the pool."""
    return [
        dialect.message([Stored(tuple(range(b, b + 500)), b - 1, block_size=BLOCK_SIZE)])
        for b in range(0, POOL, 500)
    ]


def _folds() -> Folds:
    return Folds(part.fold for part in parts_of((), "kv_events"))


def reader(warm: list[bytes]) -> Callable[[bytes], None]:
    """Decodes and folds a message, of a pool that these have filled."""
    folds, decoder, seq = _folds(), Decoder(), count()

    def read(payload: bytes) -> None:
        decoded = decoder.decode(payload)
        assert isinstance(decoded, DecodedMessage)
        batch = Batch(next(seq), 0, decoded.events, decoded.wall_ns, 0)
        for fold in folds:
            fold.on_batch(batch)

    for payload in warm:
        read(payload)
    return read


def rate(payloads: list[bytes], read: Callable[[bytes], object]) -> float:
    """Block events a CPU second."""
    spent = thread_ns(lambda: deque(map(read, payloads), maxlen=0))  # nothing is kept
    return 2 * BLOCKS * len(payloads) / spent * 1e9


def socket_rate(payloads: list[bytes], directory: str) -> float:
    """Block events a CPU second of this process, through a replay and a pipeline."""
    publisher = Publisher(f"ipc://{directory}/events", f"ipc://{directory}/replay", buffered=10**6)
    for payload in payloads:
        publisher.send(payload, lost=True)
    clock = Clock()
    began = time.process_time_ns()
    source = KvEventsSource(
        f"ipc://{directory}/events",
        replay=f"ipc://{directory}/replay",
        server="vllm",
        engine="0",
        clock=clock,
    )
    pipeline = Pipeline(source, lambda: tuple(_folds()), clock)
    pipeline.start()
    while not source.state_known:
        time.sleep(0.01)
    pipeline.drain()
    spent = time.process_time_ns() - began
    pipeline.stop()
    source.close()
    publisher.close()
    return 2 * BLOCKS * len(payloads) / spent * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2000)
    number = parser.parse_args().messages
    rows: dict[str, object] = {}
    for encoding, name in (("maps", "vllm-0.32"), ("arrays", "vllm-0.23")):
        dialect = BY_NAME[name]
        warm = filling(dialect)
        for shape, single in (("one by one", True), ("joined", False)):
            payloads = [dialect.message(events) for events in messages(number, single=single)]
            found = alternate(
                {
                    "folded": lambda _: rate(payloads, reader(warm)),  # noqa: B023
                    "decoded": lambda _: rate(payloads, Decoder().decode),  # noqa: B023
                    "plain": lambda _: rate(payloads, msgspec.msgpack.Decoder().decode),  # noqa: B023
                },
                REPETITIONS,
                warm_up=0,
            )
            row = {what: median(values) for what, values in found.items()}
            row["bytes a block"] = sum(map(len, payloads)) / len(payloads) / 2 / BLOCKS
            rows[f"{encoding}, {shape}"] = row | {"target": TARGET_RATE}
    with tempfile.TemporaryDirectory() as directory:
        payloads = [BY_NAME["vllm-0.32"].message(m) for m in messages(number, single=True)]
        rows["maps, one by one, through sockets"] = socket_rate(payloads, directory)
    report("kv_events_cost", rows)


if __name__ == "__main__":
    main()
