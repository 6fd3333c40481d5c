"""Cost of the live page at size: `python -m benchmarks.live_cost [--blocks N] [--seconds S]`.

An engine's pool of a million blocks, in a process of its own, changes 2,000 blocks a step and makes
50 steps a second; `kvscope sidecar` watches it. In turns its page is closed, and open in 20
viewers, of which one stops reading. Printed: the engine's steps and CPU time a step, the sidecar's
CPU share and memory, and frames and bytes a second of each viewer.
"""

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx

from benchmarks.processes import cpu_seconds, memory_bytes
from benchmarks.report import report
from engine.block_pool import BlockPool
from exporter.live.broadcast import LINGER_SECONDS
from kvscope_events.bus import EventBus
from kvscope_events.wire.publisher import WirePublisher
from tests.exporter.stream import hello, step
from tests.support.process import kvscope
from tests.support.waiting import wait_for

STEPS_A_SECOND = 50
BLOCKS_A_STEP = 1_000
"""Handed out and filled in a step; as many others are evicted for them."""
VIEWERS = 20
ROUNDS = 2


def run_engine(endpoint: str, num_blocks: int) -> None:
    """Steps until killed; after each second a line with what they took."""
    bus = EventBus()
    introduction = hello(model_name="large")
    bus.emit(introduction)
    pool = BlockPool(num_blocks, 16, bus)
    bus.provide_snapshot(lambda: [introduction, pool.snapshot()])
    publisher = WirePublisher(bus, endpoint)
    publisher.start()
    serial = itertools.count()
    sequence = itertools.count(1)

    def one_step() -> None:
        first, number = next(serial) * BLOCKS_A_STEP, next(sequence)
        names = [(first + index).to_bytes(16) for index in range(BLOCKS_A_STEP)]
        blocks = list(pool.allocate(number, BLOCKS_A_STEP, "prefill"))
        pool.cache(number, blocks, names, None)
        pool.release(number, blocks, "finished")
        bus.emit(step(cached_blocks=pool.num_cached, free_blocks=pool.num_free))
        bus.flush()

    for _ in range(num_blocks // BLOCKS_A_STEP + 1):
        one_step()
        time.sleep(0.01)  # the sidecar must keep up: it sees the pool from its beginning
    due = time.monotonic()
    while True:
        began, cpu = time.monotonic(), time.thread_time()
        steps = 0
        while time.monotonic() - began < 1.0:
            one_step()
            steps += 1
            due = max(due + 1 / STEPS_A_SECOND, time.monotonic() - 1.0)
            time.sleep(max(0.0, due - time.monotonic()))
        rate = steps / (time.monotonic() - began)
        print(json.dumps([rate, 1000 * (time.thread_time() - cpu) / steps]), flush=True)


async def look(port: int, seconds: float, stops: bool) -> tuple[int, int]:
    """One viewer; returns its frames and bytes. stops: it reads nothing after its first frame."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    writer.write(b"GET /live/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    frames, size, end = 0, 0, time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if stops and frames:
            await asyncio.sleep(left)
            break
        try:
            read = await asyncio.wait_for(reader.read(1 << 20), left)
        except TimeoutError:
            break
        size += len(read)
        frames += read.count(b"event: frame")
    writer.close()
    return frames, size


async def look_all(port: int, seconds: float) -> list[tuple[int, int]]:
    return await asyncio.gather(*(look(port, seconds, stops=not n) for n in range(VIEWERS)))


@contextmanager
def engine(endpoint: str, num_blocks: int) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "benchmarks.live_cost", "--engine", endpoint]
    command += ["--blocks", str(num_blocks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def measure(
    running: "subprocess.Popen[str]", pid: int, port: int, seconds: float, *, viewed: bool
) -> dict[str, float]:
    """One turn. pid: of the sidecar."""
    assert running.stdout is not None
    before, began = cpu_seconds(pid), time.monotonic()
    lines: list[list[float]] = []
    looking = None
    if viewed:
        command = [sys.executable, "-m", "benchmarks.live_cost", "--look", str(port)]
        command += ["--seconds", str(seconds)]
        looking = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    running.stdout.readline()  # the second in which the turn began
    while time.monotonic() - began < seconds:
        lines.append(json.loads(running.stdout.readline()))
    row = {
        "engine's steps a second": median(line[0] for line in lines),
        "engine's CPU ms a step": median(line[1] for line in lines),
        "sidecar's cores": (cpu_seconds(pid) - before) / (time.monotonic() - began),
        "sidecar's MiB": memory_bytes(pid) / 2**20,
    }
    if looking is not None:
        reading = json.loads(looking.communicate()[0])[1:]
        row["frames a second of a viewer, least"] = min(n for n, _ in reading) / seconds
        row["MiB a second of a viewer"] = median(size for _, size in reading) / seconds / 2**20
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each turn")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--look", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        run_engine(arguments.engine, arguments.blocks)
    if arguments.look:
        print(json.dumps(asyncio.run(look_all(arguments.look, arguments.seconds))))
        return
    rows: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o700)
        endpoint = f"ipc://{folder}/large.sock"
        options = ("sidecar", "--port", "0", "--no-gpu", "--events", f"large={endpoint}")
        with kvscope(*options, "--keep", "0") as sidecar:
            sidecar.find(r"(watching)")
            with engine(endpoint, arguments.blocks) as running:
                assert running.stdout is not None
                running.stdout.readline()  # the pool is full
                port = int(sidecar.find(r"http://[\d.]+:(\d+)"))
                url = f"http://127.0.0.1:{port}/live/snapshot"
                wait_for(lambda: len(httpx.get(url, timeout=60).content) > arguments.blocks, "map")
                answer = httpx.get(url, timeout=60)
                mib, took = len(answer.content) / 2**20, answer.elapsed.total_seconds()
                rows["snapshot"] = {"MiB": mib, "seconds": took}
                for turn in range(2 * ROUNDS):
                    viewed = turn % 2 == 1
                    if not viewed:
                        time.sleep(LINGER_SECONDS + 1)
                    pid = sidecar.popen.pid
                    row = measure(running, pid, port, arguments.seconds, viewed=viewed)
                    rows[f"{VIEWERS if viewed else 0} viewers, turn {turn // 2 + 1}"] = row
    report("live_cost", rows, blocks=arguments.blocks)


if __name__ == "__main__":
    main()
