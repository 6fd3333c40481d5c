"""Cost of pages, ours and other servers': `python -m benchmarks.page_cost [PAGE]`.

A page of one engine and of eight that have each played the same run, rendered in turn; and the
longest time that one engine's folds were held for it. Then a page of vLLM's own (PAGE, or one that
is made as large as an idle vLLM's): parsed by the library, read by us for the first time and later,
and fetched from a server on this machine, read and rendered again; with the share of a core that 64
targets take at a scrape every 15 s. CPU time of the process, medians over repetitions.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.processes import answering
from benchmarks.report import alternate, repeated, report
from kvscope_events.bus import Subscription
from kvscope_exporter.clock import Clock
from kvscope_exporter.scrape import PageReader
from kvscope_exporter.scrape.mapping import PageMapper
from kvscope_exporter.scrape.tables import TABLES
from kvscope_exporter.sources.pipeline import InProcessSource
from kvscope_exporter.targets.exporter import Exporter
from kvscope_exporter.targets.target import Target
from tests.exporter.page import FIXED_CLOCK, hello, put
from tests.exporter.scenario import play
from tests.scrape.cases.case import NOW, histogram
from tests.scrape.cases.vllm import CURRENT_PAGE

FEW, MANY = 1, 8
REPETITIONS = 101
TARGETS = 64
INTERVAL_SECONDS = 15


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


def own_pages() -> dict[str, float]:
    targets = {count: list(_targets(count)) for count in (FEW, MANY)}
    exporters = {count: Exporter(targets[count], clock=FIXED_CLOCK) for count in targets}
    sides: dict[str, Callable[[int], float]] = {
        f"{count} engines, ms": lambda _, exporter=exporter: milliseconds(exporter.render)  # type: ignore[misc]
        for count, exporter in exporters.items()
    }
    for exporter in exporters.values():
        exporter.render()  # builds the label sets
    for target in targets[MANY]:
        target.longest_ns = 0
    rows = {name: median(found) for name, found in alternate(sides, REPETITIONS).items()}
    few, many = rows.values()
    longest = max(target.longest_ns for target in targets[MANY])
    return {**rows, "ratio": many / few, "folds held at most, ms": longest / 1e6}


def milliseconds(call: Callable[[], object]) -> float:
    """CPU time of the process, its threads included."""
    began = time.process_time_ns()
    call()
    return (time.process_time_ns() - began) / 1e6


def made_page() -> str:
    """As large as that of an idle vLLM with one engine: 56 kB, some 490 samples."""
    labels = 'engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'
    further = [
        histogram(f"vllm:request_family_{number}_tokens", labels, *range(18), total=1.5)
        for number in range(24)
    ]
    return CURRENT_PAGE + "".join(further)


def their_page(page: str, url: str) -> dict[str, float]:
    (table,) = TABLES["vllm"]
    mapper = PageMapper(table)
    now_ns = [10**12]

    def clock_ns() -> int:
        now_ns[0] += 10**10  # no reading is used twice
        return now_ns[0]

    reader = PageReader(f"{url}/metrics", "vllm", clock=Clock(clock_ns))
    exporter = Exporter([], readers=[reader], process=False)
    exporter.render()
    calls: dict[str, Callable[[], object]] = {
        "parsed by the library, ms": lambda: list(text_string_to_metric_families(page)),
        "read first, ms": lambda: PageMapper(table).read(page, now=NOW),
        "read later, ms": lambda: mapper.read(page, now=NOW),
        "scraped, ms": exporter.render,
    }
    rows = {
        name: repeated(lambda call=call: milliseconds(call), REPETITIONS)  # type: ignore[misc]
        for name, call in calls.items()
    }
    assert sum(reader.errors.values()) == 0, reader.errors
    exporter.stop()
    share = TARGETS / INTERVAL_SECONDS * rows["scraped, ms"] / 1e3
    return rows | {f"share of a core for {TARGETS} targets": share, "page, kB": len(page) / 1e3}


def main() -> None:
    page = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else made_page()
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(page)
        file.flush()
        with answering(Path(file.name)) as url:
            theirs = their_page(page, url)
    report("page_cost", {"our page": own_pages(), "a vLLM's page": theirs})


if __name__ == "__main__":
    main()
