"""Cost of scrapes under load: their time, and what they do to the engine's steps.

    python -m benchmarks.scrape_cost [--vllm-python PYTHON] [--seconds 20] [--rounds 3]

`kvscope engine serve` under `kvscope load` with everything on: its whole page ten times a second,
and `/metrics/compact` twenty times; as often a bare server in a process of its own that has one
answer, which shows what the machine takes of both. With --vllm-python, a real vLLM with the same
model under the same load is scraped in turn with it. Then an engine in this process: how long steps
take during which a page is rendered, against those without.
"""

import argparse
import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from benchmarks.offline import OfflineEngine
from benchmarks.processes import answering
from benchmarks.report import report
from kvscope_events.bus import EventBus
from kvscope_events.events import StepCompleted
from tests.support.process import ROOT, kvscope
from tests.vllm.model import tiny_model
from tests.vllm.server import free_port, server_command, server_environment, started

PAGE_HERTZ = 10.0
COMPACT_HERTZ = 20.0
CONCURRENCY = 8
POOL_BLOCKS = 2048
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
        *(sys.executable, "-P", "-m", "kvscope", "load", "chat", url, "--seed", str(seed)),
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
    arguments = (
        "engine",
        "serve",
        str(model),
        "--port",
        "0",
        "--no-gpu",
        "--served-model-name",
        "tiny",
    )
    sizes = ("--num-gpu-blocks-override", str(POOL_BLOCKS), "--max-model-len", "1024")
    with kvscope(*arguments, *sizes, OMP_NUM_THREADS="1") as process:
        yield process.find(r"serving \S+ at (http://\S+?)/v1")


def over_http(python: Path | None, seconds: float, rounds: int) -> dict[str, Row]:
    """Scrapes of our server, of a bare one, and of a vLLM where there is one, in turn."""
    times: dict[str, list[float]] = {"kvscope": [], "compact": [], "bare": [], "vllm": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "bare").write_bytes(b"# TYPE bare gauge\nbare 1.0\n")
        bare = stack.enter_context(answering(folder / "bare"))
        model = tiny_model(folder / "model", "llama")
        ours = stack.enter_context(our_server(model))
        theirs = None
        if python is not None:
            port = free_port()
            command = server_command(python, model, port, "--max-model-len", "1024")
            vllm = started(command, server_environment(), port, folder, "vllm")
            theirs = stack.enter_context(vllm).url
        for number in range(rounds):
            with loaded(ours, number):
                times["kvscope"] += scraped(ours, "/metrics", PAGE_HERTZ, seconds)
                times["compact"] += scraped(ours, "/metrics/compact", COMPACT_HERTZ, seconds)
                times["bare"] += scraped(bare, "/", COMPACT_HERTZ, seconds)
            if theirs is not None:
                with loaded(theirs, number):
                    times["vllm"] += scraped(theirs, "/metrics", PAGE_HERTZ, seconds)
    return {name: quantiles(found) for name, found in times.items() if found}


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
    rows: dict[str, object] = {}
    steps = step_delays(arguments.seconds)
    during, without = steps["steps_during"], steps["steps_without"]
    rows |= steps | over_http(arguments.vllm_python, arguments.seconds, arguments.rounds)
    rows["delay of a step"] = {key: during[key] - without[key] for key in ("p50_ms", "p99_ms")}
    report("scrape_cost", rows, targets={"compact_ms": 1.0, "delay_ms": 5.0})


if __name__ == "__main__":
    main()
