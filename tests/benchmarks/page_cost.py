"""What a page costs by engines on it: `python -m tests.benchmarks.page_cost`.

Engines that have each played the same run; nothing arrives meanwhile. CPU time of the thread for
collecting and encoding a whole page, and the longest time that one engine's folds were held for it.
Prints medians over repetitions, and one JSON line.
"""

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from exporter.exporter import Exporter
from exporter.sources import InProcessSource
from exporter.target import Target
from kvscope_events.bus import Subscription
from tests.benchmarks.report import environment
from tests.exporter.page import FIXED_CLOCK, hello, put
from tests.exporter.scenario import play

ENGINES = (1, 8)
REPETITIONS = 101


class _Watched(Target):
    """A target that notes how long its folds are held."""

    longest_ns = 0

    def collect(self, *arguments: Any, **options: Any) -> Any:
        began = time.perf_counter_ns()
        families = super().collect(*arguments, **options)
        self.longest_ns = max(self.longest_ns, time.perf_counter_ns() - began)
        return families


def _targets(count: int) -> Iterator[_Watched]:
    for number in range(count):
        subscription = Subscription(64)
        put(subscription, -1, 0, hello(engine=str(number)))
        play(subscription)
        yield _Watched(InProcessSource(subscription), compat={"vllm"}, clock=FIXED_CLOCK)


@contextmanager
def _timed(samples: list[float]) -> Iterator[None]:
    began = time.thread_time_ns()
    yield
    samples.append((time.thread_time_ns() - began) / 1e6)


def measure(count: int) -> dict[str, float]:
    """Median milliseconds a page, its bytes, and the longest hold of any engine."""
    targets = list(_targets(count))
    exporter = Exporter(targets, clock=FIXED_CLOCK)
    samples: list[float] = []
    page = b""
    for number in range(REPETITIONS + 1):
        with _timed(samples):
            page, _ = exporter.render()
        if not number:
            samples.clear()  # the first one builds the label sets
            for target in targets:
                target.longest_ns = 0
    return {
        "milliseconds": statistics.median(samples),
        "kilobytes": len(page) / 1e3,
        "longest_hold_ms": max(target.longest_ns for target in targets) / 1e6,
    }


def main() -> None:
    results = {count: measure(count) for count in ENGINES}
    for count, row in results.items():
        cells = "  ".join(f"{key} {value:8.2f}" for key, value in row.items())
        print(f"{count} engine(s)  {cells}")
    few, many = (results[count]["milliseconds"] for count in ENGINES)
    print(f"ratio {many / few:.2f} for {ENGINES[1] // ENGINES[0]} times the engines")
    print(json.dumps({"environment": environment(), "pages": results, "ratio": many / few}))


if __name__ == "__main__":
    main()
