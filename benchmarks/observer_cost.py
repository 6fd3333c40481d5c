"""Cost of being observed: throughput with everything on against the null bus, the same load.

    python -m benchmarks.observer_cost

Rounds alternate between two engines in one process, the demo model in both; while one works the
other is idle. The observed one has a flight recorder, is scraped every five seconds, as in the
compose stack, sends its metrics by OTLP every ten, and is read by a gateway twenty times a second.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median

import torch

from benchmarks.offline import OfflineEngine
from benchmarks.processes import answering
from benchmarks.report import alternate, ratios, report
from kvscope_exporter.clock import Clock
from kvscope_exporter.otlp.outlet import Outlet, Served
from kvscope_exporter.otlp.settings import OtlpConfig
from tests.replay.recorded import make_recorder

SEQUENCES = (1, 8, 32)
PROMPT_TOKENS = 64
OUTPUT_TOKENS = 128
ROUNDS = 40
NUM_BLOCKS = 1024
SCRAPE_SECONDS = 5.0
EXPORT_MS = 10_000
COMPACT_SECONDS = 0.05


def measure(observed: OfflineEngine, silent: OfflineEngine, count: int) -> dict[str, float]:
    """Medians of pairs of rounds that follow each other."""

    def seconds(engine: OfflineEngine, number: int) -> float:
        random = Random(1000 * count + number)
        batch = [[random.randrange(256) for _ in range(PROMPT_TOKENS)] for _ in range(count)]
        return engine.run(batch, OUTPUT_TOKENS)

    found = alternate(
        {"observed": lambda n: seconds(observed, n), "silent": lambda n: seconds(silent, n)}, ROUNDS
    )
    rate = count * OUTPUT_TOKENS / median(found["observed"])
    return {"tokens_per_second": rate, **ratios(found["silent"], found["observed"])}


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
    recorder = make_recorder(None)
    most = max(SEQUENCES)
    observed = OfflineEngine("demo", NUM_BLOCKS, most, observed=True, recorder=recorder)
    silent = OfflineEngine("demo", NUM_BLOCKS, most, observed=False)
    exporter = observed.exporter
    assert exporter is not None
    served = [Served(instance="bench", exporter=exporter)]
    os.environ["OTEL_METRIC_EXPORT_INTERVAL"] = str(EXPORT_MS)
    with tempfile.NamedTemporaryFile() as empty, answering(Path(empty.name)) as url:
        config = OtlpConfig(url=f"{url}/v1/metrics")
        with (
            Outlet(config, lambda: served, Clock()),
            reading(exporter.render, SCRAPE_SECONDS),
            reading(exporter.compact, COMPACT_SECONDS),
            reading(recorder.write, 1.0),
        ):
            rows = {f"{count} sequences": measure(observed, silent, count) for count in SEQUENCES}
    observed.close()
    silent.close()
    report("observer_cost", rows, threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
