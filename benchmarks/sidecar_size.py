"""CPU and memory of one sidecar: `python -m benchmarks.sidecar_size [--seconds N]`.

A pool with content replaces 64 blocks a step, in a process of its own; a sidecar of it alone is
scraped every five seconds. For pools of three sizes and engines of two speeds: its CPU time as a
share of one core, its resident memory, and batches that it lost. `kvscope inject` requests by
these. Prints one JSON line.
"""

import argparse
import json
import time

from benchmarks.report import environment
from benchmarks.sidecar_idle import cpu_seconds, memory_bytes, page, publishing, watching

SIZES = (10_000, 100_000, 1_000_000)
STEPS_A_SECOND = (20, 100)
SCRAPE_SECONDS = 5.0
SETTLE_SECONDS = 3.0


def measured(blocks: int, steps: int, seconds: float) -> dict[str, float]:
    with publishing(1, blocks, steps) as folder, watching(folder, 1) as (process, url):
        pid = process.popen.pid
        time.sleep(SETTLE_SECONDS)
        before, began = cpu_seconds(pid), time.monotonic()
        text = ""
        while (left := began + seconds - time.monotonic()) > 0:
            time.sleep(min(left, SCRAPE_SECONDS))
            text = page(url, 0)
        lost = next(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("kvscope_event_batches_dropped_total{")
        )
        return {
            "blocks": blocks,
            "steps_a_second": steps,
            "cores": (cpu_seconds(pid) - before) / (time.monotonic() - began),
            "resident_mib": memory_bytes(pid, "Rss") / 2**20,
            "batches_lost": lost,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--blocks", type=int, nargs="*", default=SIZES)
    arguments = parser.parse_args()
    rows = []
    for blocks in arguments.blocks:
        for steps in STEPS_A_SECOND:
            rows.append(measured(blocks, steps, arguments.seconds))
            print(", ".join(f"{name} {value:,.3g}" for name, value in rows[-1].items()), flush=True)
    print(json.dumps({"benchmark": "sidecar_size", "rows": rows, **environment()}))


if __name__ == "__main__":
    main()
