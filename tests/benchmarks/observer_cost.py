"""What being observed costs: throughput with bus and exporter on against the null bus, same load.

    python -m tests.benchmarks.observer_cost

Rounds alternate between two engines in one process, the demo model in both; while one works the
other is idle. The observed one is also scraped every five seconds, as in the compose stack.
"""

import json
import sys
import threading
from random import Random
from statistics import median

import torch

from tests.benchmarks.offline import OfflineEngine
from tests.benchmarks.report import environment

SEQUENCES = (1, 8, 32)
PROMPT_TOKENS = 64
OUTPUT_TOKENS = 128
ROUNDS = 40
NUM_BLOCKS = 1024
SCRAPE_SECONDS = 5.0


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


def main() -> None:
    observed = OfflineEngine("demo", NUM_BLOCKS, max(SEQUENCES), observed=True)
    silent = OfflineEngine("demo", NUM_BLOCKS, max(SEQUENCES), observed=False)
    stop = threading.Event()

    def scrape() -> None:
        while not stop.wait(SCRAPE_SECONDS):
            observed.render()

    scraper = threading.Thread(target=scrape, daemon=True)
    scraper.start()
    rows = {}
    for count in SEQUENCES:
        row = rows[str(count)] = measure(observed, silent, count)
        cells = "  ".join(f"{key} {value:8.3f}" for key, value in row.items())
        print(f"{count:3d} sequences  {cells}", file=sys.stderr)
    stop.set()
    scraper.join()
    observed.close()
    silent.close()
    facts = environment()
    print(json.dumps({"environment": facts, "threads": torch.get_num_threads(), "observed": rows}))


if __name__ == "__main__":
    main()
