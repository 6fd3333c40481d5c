"""Cost of the live page at size: `python -m benchmarks.live_cost [--blocks N] [--seconds S]`.

An engine's pool of a million blocks, in a process of its own, changes 2,000 blocks a step and makes
50 steps a second; `kvscope sidecar` watches it. In turns its page is closed, and open in 20
viewers, of which one stops reading. Printed: the engine's steps and CPU time a step, the sidecar's
CPU share and memory, and frames and bytes a second of each viewer; with a Chromium on PATH also the
pictures a second that it draws of the page, and its CPU share; then one JSON line.
"""

import argparse
import asyncio
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.report import environment
from engine.block_pool import BlockPool
from exporter.live.broadcast import LINGER_SECONDS
from kvscope_events.bus import EventBus
from kvscope_events.wire.publisher import WirePublisher
from tests.exporter.stream import hello, step
from tests.support.chromium import PROGRAM, browsing
from tests.support.process import Process, kvscope
from tests.support.waiting import wait_for

STEPS_A_SECOND = 50
BLOCKS_A_STEP = 1_000
"""Handed out and filled in a step; as many others are evicted for them."""
VIEWERS = 20
ROUNDS = 2
TICKS_A_SECOND = 100
"""Unit of CPU time in /proc."""


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


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def draw(url: str, seconds: float) -> dict[str, float]:
    """Chromium with the page open."""
    with browsing() as page, page.at(url):
        page.until("globalThis.kvscopeLive?.store.counts.frames > 3", 120)
        page.value(
            "globalThis.pictures = 0;"
            "const turn = () => { pictures += 1; requestAnimationFrame(turn); }; turn();"
        )
        before = page.value("kvscopeLive.store.counts.frames"), chromium_seconds()
        time.sleep(seconds)
        return {
            "pictures_per_second": page.value("pictures") / seconds,
            "frames_per_second": (page.value("kvscopeLive.store.counts.frames") - before[0])
            / seconds,
            "browser_cores": (chromium_seconds() - before[1]) / seconds,
        }


def chromium_seconds() -> float:
    """CPU time of the browsers on this machine."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "-C", "chromium"], capture_output=True, text=True, check=False
    )
    return sum(cpu_seconds(int(pid)) for pid in found.stdout.split())


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
    running: "subprocess.Popen[str]", sidecar: Process, port: int, seconds: float, *, viewed: bool
) -> dict[str, float]:
    """One turn."""
    assert running.stdout is not None
    before, began = cpu_seconds(sidecar.popen.pid), time.monotonic()
    lines: list[list[float]] = []
    viewers: list[tuple[int, int]] = []
    looking = None
    if viewed:
        command = [sys.executable, "-m", "benchmarks.live_cost", "--look", str(port)]
        looking = subprocess.Popen(
            [*command, "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True
        )
    running.stdout.readline()  # the second in which the turn began
    while time.monotonic() - began < seconds:
        lines.append(json.loads(running.stdout.readline()))
    share = (cpu_seconds(sidecar.popen.pid) - before) / (time.monotonic() - began)
    result = {
        "engine_steps_per_second": statistics.median(line[0] for line in lines),
        "engine_cpu_ms_per_step": statistics.median(line[1] for line in lines),
        "sidecar_cores": share,
        "sidecar_mib": resident_mib(sidecar.popen.pid),
    }
    if looking is not None:
        viewers = json.loads(looking.communicate()[0])
        reading = viewers[1:]
        result["frames_per_second_least"] = min(frames for frames, _ in reading) / seconds
        result["frames_per_second_most"] = max(frames for frames, _ in reading) / seconds
        result["mib_per_second_of_a_viewer"] = (
            statistics.median(size for _, size in reading) / seconds / 2**20
        )
    return result


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
    has_browser = shutil.which(PROGRAM) is not None
    turns: dict[bool, list[dict[str, float]]] = {False: [], True: []}
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
                began = time.monotonic()
                snapshot = len(httpx.get(url, timeout=60).content)
                took = time.monotonic() - began
                for _ in range(ROUNDS):
                    for viewed in (False, True):
                        if not viewed:
                            time.sleep(LINGER_SECONDS + 1)
                        turn = measure(running, sidecar, port, arguments.seconds, viewed=viewed)
                        turns[viewed].append(turn)
                        print(f"{'viewers' if viewed else 'closed ':8}", _text(turn), flush=True)
                drawn = (
                    draw(f"http://127.0.0.1:{port}/live", arguments.seconds) if has_browser else {}
                )
    summary = {
        ("viewed" if viewed else "unseen"): {
            name: statistics.median(turn[name] for turn in made) for name in made[0]
        }
        for viewed, made in turns.items()
    }
    with_viewers, without = summary["viewed"], summary["unseen"]
    ratio = with_viewers["engine_steps_per_second"] / without["engine_steps_per_second"]
    print(f"engine's steps with viewers over without: {ratio:.3f}")
    print(f"snapshot: {snapshot / 2**20:.1f} MiB in {took:.2f} s")
    print("chromium", _text(drawn) or "is not on PATH")
    print(
        json.dumps(
            {
                "benchmark": "live_cost",
                "blocks": arguments.blocks,
                "ratio": ratio,
                "snapshot_bytes": snapshot,
                "snapshot_seconds": took,
                "chromium": drawn,
                **summary,
                **environment(),
            }
        )
    )


def _text(turn: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in turn.items())


if __name__ == "__main__":
    main()
