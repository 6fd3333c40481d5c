"""Cost of being observed: throughput with bus and exporter on against the null bus, same load.

    python -m benchmarks.observer_cost

Rounds alternate between two engines in one process, the demo model in both; while one works the
other is idle. The observed one has everything on: it is also scraped every five seconds, as in the
compose stack, sends its metrics by OTLP every ten, and is read by a gateway twenty times a second.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from statistics import median

import torch

from benchmarks.offline import OfflineEngine
from benchmarks.report import environment
from benchmarks.sink import sink
from exporter.clock import Clock
from exporter.otlp.outlet import Outlet, Served
from exporter.otlp.settings import OtlpConfig

SEQUENCES = (1, 8, 32)
PROMPT_TOKENS = 64
OUTPUT_TOKENS = 128
ROUNDS = 40
NUM_BLOCKS = 1024
SCRAPE_SECONDS = 5.0
EXPORT_MS = 10_000
COMPACT_SECONDS = 0.05


def measure(observed: OfflineEngine, silent: OfflineEngine, count: int) -> dict[str, float]:
    """Medians of pairs of rounds that follow each other, so that drift cancels."""
    random = Random(count)
    ratios, rates = [], []
    for number in range(ROUNDS + 1):
        batch = [[random.randrange(256) for _ in range(PROMPT_TOKENS)] for _ in range(count)]
        order = (observed, silent) if number % 2 else (silent, observed)
        seconds = {id(engine): engine.run(batch, OUTPUT_TOKENS) for engine in order}
        if number:  # the first round is warm-up
            ratios.append(seconds[id(silent)] / seconds[id(observed)])
            rates.append(count * OUTPUT_TOKENS / seconds[id(observed)])
    return {
        "tokens_per_second": median(rates),
        "ratio": median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
    }


@contextmanager
def reading(read: Callable[[], object], seconds: float) -> Iterator[None]:
    """Calls it in intervals, on a thread of its own."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(seconds):
            read()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def main() -> None:
    observed = OfflineEngine("demo", NUM_BLOCKS, max(SEQUENCES), observed=True)
    silent = OfflineEngine("demo", NUM_BLOCKS, max(SEQUENCES), observed=False)
    exporter = observed.exporter
    assert exporter is not None
    rows = {}
    with sink() as url, reading(exporter.render, SCRAPE_SECONDS):
        os.environ["OTEL_METRIC_EXPORT_INTERVAL"] = str(EXPORT_MS)
        config = OtlpConfig(url=f"{url}/v1/metrics")
        served = [Served(instance="bench", exporter=exporter)]
        with (
            Outlet(config, lambda: served, Clock()),
            reading(exporter.compact, COMPACT_SECONDS),
        ):
            for count in SEQUENCES:
                row = rows[str(count)] = measure(observed, silent, count)
                cells = "  ".join(f"{key} {value:8.3f}" for key, value in row.items())
                print(f"{count:3d} sequences  {cells}", file=sys.stderr)
    observed.close()
    silent.close()
    facts = environment()
    print(json.dumps({"environment": facts, "threads": torch.get_num_threads(), "observed": rows}))


if __name__ == "__main__":
    main()
