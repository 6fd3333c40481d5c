"""Cost of a sidecar: `python -m benchmarks.sidecar_idle [--seconds N]`.

Idle: its CPU time, as a share of one core, with 64 targets that send nothing but heartbeats; with a
scrape of every page each 15 s, and without. Memory: resident and proportional, with four pools of
100,000 blocks, all of them with content, while each replaces 640 blocks a second and is scraped.
The publishers are in another process. Prints one JSON line.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx

from benchmarks.report import environment
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
from tests.support.process import Process, kvscope
from tests.support.waiting import wait_for

TARGETS = 64
TARGET_SHARE = 0.03
POOLS = 4
NUM_BLOCKS = 100_000
BLOCKS_A_STEP = 64
STEPS_A_SECOND = 10
TARGET_BYTES = 150_000_000
SCRAPE_SECONDS = 15.0
SETTLE_SECONDS = 10.0


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
        if not self._lru:
            return
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
        lru = list(self._lru)
        hashes = self._hashes.copy()
        return PoolSnapshot(self._num_blocks, 16, 64, 0, references, hashes, lru)


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
        while True:
            time.sleep(1 / steps_a_second)
            for pool in pools:
                pool.step()


@contextmanager
def publishing(count: int, num_blocks: int, steps_a_second: float) -> Iterator[str]:
    """The folder of as many sockets."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.sidecar_idle", "--publish", folder]
        command += [str(count), str(num_blocks), str(steps_a_second)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            try:
                assert other.stdout is not None
                assert other.stdout.readline() == "ready\n"
                yield folder
            finally:
                other.kill()


def _is_known(url: str, number: int) -> bool:
    return "kvscope_kv_blocks{" in page(url, number)


@contextmanager
def watching(folder: str, count: int) -> Iterator[tuple[Process, str]]:
    """A sidecar of all of them that knows every state, and its URL."""
    file = Path(folder) / "kvscope.yaml"
    lines = [f"- {{name: s{n}, events: ['ipc://{folder}/{n}.sock']}}" for n in range(count)]
    file.write_text("servers:\n" + "\n".join(lines))
    with kvscope("sidecar", "--config", str(file), "--port", "0", "--no-gpu") as process:
        url = process.find(r"(http://[\d.]+:\d+)")
        for number in range(count):
            wait_for(partial(_is_known, url, number), "known", 120)
        yield process, url


def page(url: str, number: int) -> str:
    try:
        return httpx.get(f"{url}/scrape", params={"target": f"s{number}"}, timeout=60).text
    except httpx.HTTPError:
        return ""


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def share(process: Process, seconds: float, scrape: str | None) -> float:
    """CPU time as a share of one core."""
    pid = process.popen.pid
    before, began = cpu_seconds(pid), time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        time.sleep(min(left, SCRAPE_SECONDS))
        if scrape is not None:
            for number in range(TARGETS):
                page(scrape, number)
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


def idle(seconds: float) -> dict[str, float]:
    with publishing(TARGETS, 1024, 0) as folder, watching(folder, TARGETS) as (process, url):
        time.sleep(SETTLE_SECONDS)
        threads = len(list(Path(f"/proc/{process.popen.pid}/task").iterdir()))
        return {
            "targets": TARGETS,
            "threads": threads,
            "share of a core, idle": share(process, seconds, None),
            "target": TARGET_SHARE,
            "share of a core, each page scraped every 15 s": share(process, seconds, url),
            "resident, bytes": memory_bytes(process.popen.pid, "Rss"),
        }


def memory(seconds: float) -> dict[str, float]:
    with (
        publishing(POOLS, NUM_BLOCKS, STEPS_A_SECOND) as folder,
        watching(folder, POOLS) as (process, url),
    ):
        highest = proportional = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for number in range(POOLS):
                assert f'state="cached"}} {NUM_BLOCKS}' in page(url, number).replace(".0", "")
            highest = max(highest, memory_bytes(process.popen.pid, "Rss"))
            proportional = max(proportional, memory_bytes(process.popen.pid, "Pss"))
            time.sleep(1)
        return {
            "pools": POOLS,
            "blocks": NUM_BLOCKS,
            "resident at most, bytes": highest,
            "proportional at most, bytes": proportional,
            "target": TARGET_BYTES,
            "share of a core": share(process, 5, None),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--publish", nargs=4)
    options = parser.parse_args()
    if options.publish:
        folder, count, num_blocks, rate = options.publish
        publish(folder, int(count), int(num_blocks), float(rate))
        return
    parts = {"idle": idle(options.seconds), "memory": memory(options.seconds / 2)}
    for part, values in parts.items():
        for what, value in values.items():
            print(f"{part}: {what}: {value:g}")
    print(json.dumps({"environment": environment(), **parts}))


if __name__ == "__main__":
    main()
