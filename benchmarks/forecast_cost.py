"""Cost of one forecast of exhaustion: `python -m benchmarks.forecast_cost`.

A simulated engine with about this many running sequences; then the forecast is computed again and
again, as often as a page is read. CPU time of the thread; prints the median and the worst, and one
JSON line.
"""

import argparse
import json
import platform
import statistics
import time
from random import Random

from benchmarks.forecast.loads import arrivals, call, chat
from benchmarks.forecast.simulator import Machine, Simulator
from exporter.fold.exhaustion import Exhaustion

SECONDS = 80.0


def measure(running: int, repetitions: int) -> dict[str, float]:
    """Milliseconds of one forecast."""
    random, rate = Random(1), running / 19.2
    machine = Machine(
        num_blocks=30 * running, max_num_seqs=running, step_seconds=0.1, sequence_seconds=0.0
    )
    calls = (call(at, chat(random)) for at in arrivals(random, SECONDS, lambda _: rate, rate))
    fold = Exhaustion()
    for batch in Simulator(machine).play(calls, SECONDS):
        fold.on_batch(batch)
    costs = []
    for index in range(1, repetitions + 1):
        began = time.thread_time_ns()
        assert fold.probabilities(1.001 * index) is not None
        costs.append((time.thread_time_ns() - began) / 1e6)
    return {
        "running": len(fold._sequences.running),
        "median": statistics.median(costs),
        "worst": max(costs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=60)
    arguments = parser.parse_args()
    results = [measure(running, arguments.repetitions) for running in (16, 128, 512)]
    for result in results:
        print(
            f"{result['running']:>6.0f} running: {result['median']:6.2f} ms, at worst "
            f"{result['worst']:6.2f} ms"
        )
    print(json.dumps({"python": platform.python_version(), "ms_per_forecast": results}))


if __name__ == "__main__":
    main()
