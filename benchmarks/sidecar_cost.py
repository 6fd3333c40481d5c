"""Cost of a sidecar: `python -m benchmarks.sidecar_cost [idle] [memory] [sizes] [--seconds N]`.

idle: its CPU time, as a share of one core, with 64 targets that send nothing but heartbeats, with a
scrape of every page each 15 s and without. memory: four pools of 100,000 blocks, all with content,
while each replaces 640 blocks a second and is scraped. sizes: one engine, by the size of its pool
and its steps a second; `kvscope inject` requests by these. The publishers are in another process.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx

from benchmarks.processes import cpu_seconds, memory_bytes
from benchmarks.report import report
from kvscope_events.bus import EventBus
from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    CacheGroup,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
    StepCompleted,
)
from kvscope_events.wire.publisher import WirePublisher
from tests.exporter.stream import hello, step
from tests.support.pages import sample
from tests.support.process import kvscope
from tests.support.waiting import wait_for

TARGETS, TARGET_SHARE = 64, 0.03
POOLS, NUM_BLOCKS, TARGET_BYTES = 4, 100_000, 150_000_000
SIZES = (10_000, 100_000, 1_000_000)
STEPS_A_SECOND = (20, 100)
BLOCKS_A_STEP = 64
SCRAPE_SECONDS = 15.0
SETTLE_SECONDS = 10.0
Rows = dict[str, object]


class Pool:
    """Full of content; every step replaces some of it."""

    def __init__(self, bus: EventBus, name: str, num_blocks: int) -> None:
        self._bus = bus
        self._hello = hello(model_name=name)
        self._num_blocks = num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._lru = deque[int]()
        bus.provide_snapshot(lambda: [self._hello, self._snapshot()])

    def fill(self) -> None:
        """Create it, and give each block a name."""
        groups = [CacheGroup("full_attention", 16)]
        self._emit(self._hello, PoolCreated(self._num_blocks, 16, 64, 0, {}, groups))
        for first in range(0, self._num_blocks, BLOCKS_A_STEP):
            blocks = list(range(first, min(first + BLOCKS_A_STEP, self._num_blocks)))
            self._emit(*self._filled(blocks), self._counts())

    def step(self) -> None:
        """Replace the oldest content."""
        blocks = [self._lru.popleft() for _ in range(BLOCKS_A_STEP)]
        names = [name for name in (self._hashes[block] for block in blocks) if name is not None]
        self._emit(BlocksEvicted(blocks, names, "capacity"), *self._filled(blocks), self._counts())

    def _filled(self, blocks: list[int]) -> list[EngineEvent]:
        names = [os.urandom(16) for _ in blocks]
        for block, name in zip(blocks, names, strict=True):
            self._hashes[block] = name
        self._lru += blocks
        return [
            BlocksAllocated(1, blocks.copy(), "prefill"),
            BlocksCached(1, blocks.copy(), names, None),
            BlocksReleased(1, blocks.copy(), [], [], "finished"),
        ]

    def _counts(self) -> StepCompleted:
        cached = len(self._lru)
        return step(cached_blocks=cached, free_blocks=self._num_blocks - cached)

    def _emit(self, *events: EngineEvent) -> None:
        for event in events:
            self._bus.emit(event)
        self._bus.flush()

    def _snapshot(self) -> PoolSnapshot:
        references = [0] * self._num_blocks
        hashes = self._hashes.copy()
        return PoolSnapshot(self._num_blocks, 16, 64, 0, references, hashes, list(self._lru))


def publish(folder: str, count: int, num_blocks: int, steps_a_second: float) -> None:
    """The other process: publishers until its input ends."""
    with ExitStack() as stack:
        pools = []
        for number in range(count):
            bus = EventBus()
            publisher = WirePublisher(bus, f"ipc://{folder}/{number}.sock")
            publisher.start()
            stack.callback(publisher.stop)
            pools.append(Pool(bus, f"model-{number}", num_blocks))
        for pool in pools:
            pool.fill()
        print("ready", flush=True)
        if not steps_a_second:
            sys.stdin.read()
        while steps_a_second:
            time.sleep(1 / steps_a_second)
            for pool in pools:
                pool.step()


@contextmanager
def watching(count: int, num_blocks: int, steps_a_second: float) -> Iterator[tuple[int, str]]:
    """A sidecar of as many pools that knows every state: its process number, and its URL."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        command = [sys.executable, "-m", "benchmarks.sidecar_cost", "--publish", folder]
        command += [str(count), str(num_blocks), str(steps_a_second)]
        other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.enter_context(other)
        stack.callback(other.kill)
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        file = Path(folder) / "kvscope.yaml"
        lines = [f"- {{name: s{n}, events: ['ipc://{folder}/{n}.sock']}}" for n in range(count)]
        file.write_text("servers:\n" + "\n".join(lines))
        options = ("sidecar", "--config", str(file), "--port", "0", "--no-gpu")
        process = stack.enter_context(kvscope(*options))
        url = process.find(r"(http://[\d.]+:\d+)")
        for number in range(count):
            wait_for(partial(_is_known, url, number), "known", 120)
        yield process.popen.pid, url


def _is_known(url: str, number: int) -> bool:
    return "kvscope_kv_blocks{" in page(url, number)


def page(url: str, number: int) -> str:
    try:
        return httpx.get(f"{url}/scrape", params={"target": f"s{number}"}, timeout=60).text
    except httpx.HTTPError:
        return ""


def share(pid: int, seconds: float, each: Callable[[], object] | None, apart: float) -> float:
    """CPU time as a share of one core. each: called that many seconds `apart`."""
    before, began = cpu_seconds(pid), time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        time.sleep(min(left, apart))
        if each is not None:
            each()
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


def idle(seconds: float) -> Rows:
    with watching(TARGETS, 1024, 0) as (pid, url):
        time.sleep(SETTLE_SECONDS)

        def scrape() -> None:
            for number in range(TARGETS):
                page(url, number)

        return {
            f"{TARGETS} idle targets": {
                "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
                "share of a core": share(pid, seconds, None, SCRAPE_SECONDS),
                "target": TARGET_SHARE,
                "share, each page scraped every 15 s": share(pid, seconds, scrape, SCRAPE_SECONDS),
            }
        }


def memory(seconds: float) -> Rows:
    with watching(POOLS, NUM_BLOCKS, 10) as (pid, url):
        most = {"Rss": 0, "Pss": 0}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for number in range(POOLS):
                assert sample(page(url, number), "kvscope_kv_blocks", state="cached") == NUM_BLOCKS
            for field in most:
                most[field] = max(most[field], memory_bytes(pid, field))
            time.sleep(1)
        row = {**most, "target": TARGET_BYTES, "share of a core": share(pid, 5, None, 5)}
        return {f"{POOLS} pools of {NUM_BLOCKS:,} blocks, bytes at most": row}


def sizes(seconds: float) -> Rows:
    rows: Rows = {}
    for blocks in SIZES:
        for steps in STEPS_A_SECOND:
            with watching(1, blocks, steps) as (pid, url):
                time.sleep(SETTLE_SECONDS / 3)
                cores = share(pid, seconds, partial(page, url, 0), 5.0)
                rows[f"{blocks:,} blocks, {steps} steps a second"] = {
                    "cores": cores,
                    "resident_mib": memory_bytes(pid) / 2**20,
                    "lost": sample(page(url, 0), "kvscope_event_batches_dropped_total"),
                }
    return rows


PARTS = {"idle": idle, "memory": memory, "sizes": sizes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--publish", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.publish:
        folder, count, num_blocks, rate = options.publish
        publish(folder, int(count), int(num_blocks), float(rate))
        return
    rows: Rows = {}
    for part in options.parts or PARTS:
        rows |= PARTS[part](options.seconds)
    report("sidecar_cost", rows)


if __name__ == "__main__":
    main()
