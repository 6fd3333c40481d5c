"""Cost of a page by engines on it: `python -m benchmarks.page_cost`.

Engines that have each played the same run; nothing arrives meanwhile. CPU time of the thread for
collecting and encoding a whole page, and the longest time that one engine's folds were held for it.
Prints medians over repetitions, and one JSON line.
"""

import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.report import environment
from exporter.sources.pipeline import InProcessSource
from exporter.watched.exporter import Exporter
from exporter.watched.target import Target
from kvscope_events.bus import Subscription
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


class _Server:
    """An exporter of this many engines, and the cost of its pages."""

    def __init__(self, engines: int) -> None:
        self._targets = list(_targets(engines))
        self._exporter = Exporter(self._targets, clock=FIXED_CLOCK)
        self.milliseconds: list[float] = []
        self.kilobytes = 0.0
        self._exporter.render()  # builds the label sets
        for target in self._targets:
            target.longest_ns = 0

    @property
    def longest_hold_ms(self) -> float:
        return max(target.longest_ns for target in self._targets) / 1e6

    def render(self) -> None:
        """One page, timed."""
        began = time.thread_time_ns()
        page, _ = self._exporter.render()
        self.milliseconds.append((time.thread_time_ns() - began) / 1e6)
        self.kilobytes = len(page) / 1e3


def main() -> None:
    servers = {count: _Server(count) for count in ENGINES}
    for _ in range(REPETITIONS):
        for server in servers.values():  # in turn: drift of the machine cancels
            server.render()
    results = {
        count: {
            "milliseconds": statistics.median(server.milliseconds),
            "kilobytes": server.kilobytes,
            "longest_hold_ms": server.longest_hold_ms,
        }
        for count, server in servers.items()
    }
    for count, row in results.items():
        cells = "  ".join(f"{key} {value:8.2f}" for key, value in row.items())
        print(f"{count} engine(s)  {cells}")
    few, many = (results[count]["milliseconds"] for count in ENGINES)
    print(f"ratio {many / few:.2f} for {ENGINES[1] // ENGINES[0]} times the engines")
    print(json.dumps({"environment": environment(), "pages": results, "ratio": many / few}))


if __name__ == "__main__":
    main()
