"""Cost of scrapes under load: their time, and what they do to the engine's steps.

    python -m benchmarks.scrape_cost [--vllm-python PYTHON] [--seconds 20] [--rounds 3]

`kvscope serve` under `kvscope load` with everything on: its whole page ten times a second, and
`/metrics/compact` twenty times; as often a bare server in a process of its own, which shows what
the machine takes of both. With --vllm-python, a real vLLM with the same model under the same
load is scraped in turn with it. Then an engine in this process: how long steps take during which a
page is rendered, against those without. Prints one JSON line.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from benchmarks.offline import OfflineEngine
from benchmarks.report import environment
from kvscope_events.bus import EventBus
from kvscope_events.events import StepCompleted
from tests.support.process import ROOT, kvscope
from tests.vllm.model import tiny_model
from tests.vllm.server import free_port, server_command, server_environment, started

PAGE_HERTZ = 10.0
COMPACT_HERTZ = 20.0
CONCURRENCY = 8
POOL_BLOCKS = 2048
TARGET_COMPACT_MS = 1.0
TARGET_DELAY_MS = 5.0
WARM_SECONDS = 3.0
Row = dict[str, float]


def quantiles(values: list[float]) -> Row:
    """Median, p99 and the largest, in milliseconds."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "number": len(ordered),
        "p50_ms": ordered[last // 2] * 1e3,
        "p99_ms": ordered[round(last * 0.99)] * 1e3,
        "max_ms": ordered[last] * 1e3,
    }


def scraped(url: str, path: str, hertz: float, seconds: float) -> list[float]:
    """Seconds of each scrape on one connection, at a steady rate."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    found = []
    began = time.perf_counter()
    for number in range(round(seconds * hertz)):
        time.sleep(max(0.0, began + number / hertz - time.perf_counter()))
        start = time.perf_counter()
        connection.request("GET", path, headers={"Accept-Encoding": "identity"})
        answer = connection.getresponse()
        body = answer.read()
        found.append(time.perf_counter() - start)
        assert answer.status == 200, body[:200]
        assert body, "nothing is known"
    connection.close()
    return found


@contextmanager
def loaded(url: str, seed: int) -> Iterator[None]:
    """The server is asked for completions meanwhile."""
    command = [
        *(sys.executable, "-P", "-m", "kvscope", "load", "chat", "--url", url, "--seed", str(seed)),
        *("--duration", "86400", "--concurrency", str(CONCURRENCY), "--sessions", "8"),
        *("--max-tokens", "64", "--ignore-eos"),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            time.sleep(WARM_SECONDS)
            assert process.poll() is None, "the load ended"
            yield
        finally:
            process.terminate()


@contextmanager
def our_server(model: Path) -> Iterator[str]:
    arguments = ("serve", str(model), "--port", "0", "--no-gpu", "--served-model-name", "tiny")
    sizes = ("--num-gpu-blocks-override", str(POOL_BLOCKS), "--max-model-len", "1024")
    with kvscope(*arguments, *sizes, OMP_NUM_THREADS="1") as process:
        yield process.find(r"serving \S+ at (http://\S+?)/v1")


@contextmanager
def bare_server() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.bare_server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def over_http(python: Path | None, seconds: float, rounds: int) -> dict[str, Row]:
    """Scrapes of our server, of a bare one, and of a vLLM where there is one, in turn."""
    times: dict[str, list[float]] = {"kvscope": [], "compact": [], "bare": [], "vllm": []}
    with tempfile.TemporaryDirectory() as name, bare_server() as bare:
        model = tiny_model(Path(name) / "model", "llama")
        with our_server(model) as ours:
            if python is None:
                for number in range(rounds):
                    scrape_ours(ours, bare, times, seconds, number)
            else:
                port = free_port()
                command = server_command(python, model, port, "--max-model-len", "1024")
                folder = Path(name)
                with started(command, server_environment(), port, folder, "vllm") as vllm:
                    for number in range(rounds):
                        scrape_ours(ours, bare, times, seconds, number)
                        with loaded(vllm.url, number):
                            times["vllm"] += scraped(vllm.url, "/metrics", PAGE_HERTZ, seconds)
    return {name: quantiles(found) for name, found in times.items() if found}


def scrape_ours(
    url: str, bare: str, times: dict[str, list[float]], seconds: float, number: int
) -> None:
    with loaded(url, number):
        times["kvscope"] += scraped(url, "/metrics", PAGE_HERTZ, seconds)
        times["compact"] += scraped(url, "/metrics/compact", COMPACT_HERTZ, seconds)
        times["bare"] += scraped(bare, "/", COMPACT_HERTZ, seconds)


def step_delays(seconds: float) -> dict[str, Row]:
    """Steps of 8 sequences that a render overlaps, and those that none does."""
    engine = OfflineEngine("demo", 1024, CONCURRENCY, observed=True)
    assert isinstance(engine.bus, EventBus)
    steps = engine.bus.subscribe(queue_batches=1 << 20)
    renders: list[tuple[int, int]] = []
    stop = threading.Event()

    def scrape() -> None:
        while not stop.wait(1 / PAGE_HERTZ):
            began = time.monotonic_ns()
            engine.render()
            renders.append((began, time.monotonic_ns()))

    random = Random(1)
    engine.run([[1] * 64] * CONCURRENCY, 16)  # warm-up
    while steps.take() is not None:
        pass
    scraper = threading.Thread(target=scrape, daemon=True)
    scraper.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        prompts = [[random.randrange(256) for _ in range(64)] for _ in range(CONCURRENCY)]
        engine.run(prompts, 128)
    stop.set()
    scraper.join()
    engine.close()
    during: list[float] = []
    without: list[float] = []
    while (taken := steps.take()) is not None:
        batch = taken[0]
        for event in batch.events:
            if isinstance(event, StepCompleted) and not event.prefill_tokens:
                began = batch.time_ns - event.duration_ns
                overlapped = any(
                    start < batch.time_ns and began < ended for start, ended in renders
                )
                (during if overlapped else without).append(event.duration_ns / 1e9)
    rendered = [(ended - start) / 1e9 for start, ended in renders]
    return {
        "steps_during": quantiles(during),
        "steps_without": quantiles(without),
        "renders": quantiles(rendered),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm-python", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = step_delays(arguments.seconds)
    during, without = rows["steps_during"], rows["steps_without"]
    delays = {key: during[key] - without[key] for key in ("p50_ms", "p99_ms")}
    rows |= over_http(arguments.vllm_python, arguments.seconds, arguments.rounds)
    for name, row in rows.items():
        cells = "  ".join(f"{key} {value:9.2f}" for key, value in row.items())
        print(f"{name:14} {cells}")
    print(f"a page delays a step by {delays}; target {TARGET_DELAY_MS} ms")
    print(json.dumps({"environment": environment(), "rows": rows, "delays": delays}))


if __name__ == "__main__":
    main()
