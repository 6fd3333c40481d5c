"""Cost of KV events for their reader: `python -m benchmarks.kv_events_cost [--messages N]`.

A warm pool of 100,000 blocks: each message stores 64 blocks of 16 tokens and removes as many that
were stored before, in one event a block (decoding sequences) or in one event for all (a prompt), as
maps and as arrays. Block events a CPU second of the thread that decodes and folds, with all folds
of such a target; the same with msgspec's plain objects in place of our decoder, as a ratio; and
through real sockets, with the CPU time of the reading thread as well. Medians; one JSON line.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator

import msgspec

from benchmarks.report import environment
from exporter.clock import Clock
from exporter.collect.parts import parts_of
from exporter.fold import Folds
from exporter.sources.kv_events import KvEventsSource
from exporter.sources.kv_events.decoder import Decoded, Decoder
from exporter.sources.pipeline import Pipeline
from kvscope_events.events import Batch
from tests.kv_events.dialects import BY_NAME, Dialect, Removed, Said, Stored
from tests.kv_events.publisher import Publisher

REPETITIONS = 7
BLOCKS = 64
BLOCK_SIZE = 16
POOL = 100_000
TARGET_RATE = 200_000


def messages(count: int, *, single: bool) -> Iterator[list[Said]]:
    """Messages of a pool that is full from the first one on, without its earlier content."""
    for number in range(count):
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


def fold_rate(payloads: list[bytes], warm: list[bytes]) -> float:
    """Block events a CPU second, decoded by us and folded."""
    folds, decoder = _folds(), Decoder()

    def read(payload: bytes, seq: int) -> None:
        decoded = decoder.decode(payload)
        assert isinstance(decoded, Decoded)
        batch = Batch(seq, 0, decoded.events, decoded.wall_ns, 0)
        for fold in folds:
            fold.on_batch(batch)

    for seq, payload in enumerate(warm):
        read(payload, seq)
    began = time.thread_time_ns()
    for seq, payload in enumerate(payloads):
        read(payload, seq)
    return 2 * BLOCKS * len(payloads) / (time.thread_time_ns() - began) * 1e9


def plain_rate(payloads: list[bytes]) -> float:
    """Block events a CPU second, only decoded, to plain objects."""
    decode = msgspec.msgpack.Decoder().decode
    began = time.thread_time_ns()
    for payload in payloads:
        decode(payload)
    return 2 * BLOCKS * len(payloads) / (time.thread_time_ns() - began) * 1e9


def decode_rate(payloads: list[bytes]) -> float:
    """Block events a CPU second, only decoded, by us."""
    decode = Decoder().decode
    began = time.thread_time_ns()
    for payload in payloads:
        decode(payload)
    return 2 * BLOCKS * len(payloads) / (time.thread_time_ns() - began) * 1e9


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
    count = parser.parse_args().messages
    figures: dict[str, float] = {}
    for encoding, name in (("maps", "vllm-0.32"), ("arrays", "vllm-0.23")):
        dialect = BY_NAME[name]
        warm = filling(dialect)
        for shape, single in (("one by one", True), ("joined", False)):
            payloads = [dialect.message(events) for events in messages(count, single=single)]
            size = sum(map(len, payloads)) / len(payloads) / 2 / BLOCKS
            rates = {"folded": [], "decoded": [], "plain": []}  # type: dict[str, list[float]]
            for _ in range(REPETITIONS):
                rates["folded"].append(fold_rate(payloads, warm))
                rates["decoded"].append(decode_rate(payloads))
                rates["plain"].append(plain_rate(payloads))
            median = {what: statistics.median(values) for what, values in rates.items()}
            verdict = "ok" if median["folded"] >= TARGET_RATE else "BELOW TARGET"
            print(
                f"{encoding:6} {shape:10} {size:5.0f} B/block  decoded and folded "
                f"{median['folded']:9,.0f}/s ({verdict}, {median['folded'] / TARGET_RATE:.1f} of "
                f"the target); decoded {median['decoded']:9,.0f}/s, "
                f"{median['decoded'] / median['plain']:.2f} of plain objects'"
            )
            figures |= {f"{encoding} {shape} {what}": value for what, value in median.items()}
    with tempfile.TemporaryDirectory() as directory:
        payloads = [BY_NAME["vllm-0.32"].message(m) for m in messages(count, single=True)]
        rate = socket_rate(payloads, directory)
    print(f"maps one by one, replayed through sockets, publisher included {rate:9,.0f}/s")
    figures["maps one by one sockets"] = rate
    print(json.dumps({"benchmark": "kv_events_cost", **environment(), **figures}))


if __name__ == "__main__":
    main()
