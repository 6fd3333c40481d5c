"""A Prometheus beside a real vLLM whose observer goes off and on under load: no count jumps."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from exporter.catalogue import metric
from exporter.readings import PageReader, front_end_of
from kvscope.diagnosis.switching import switch
from tests.support.prometheus import Prometheus, prometheus
from tests.support.waiting import wait_for
from tests.vllm.observed import SMALL, Observed, observed, outgrow
from tests.vllm.server import VllmServer

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.slow),
    pytest.mark.prometheus,
    pytest.mark.timeout(900),
]

CYCLES = 2
PHASE_SECONDS = 20
SLACK = 0.15
"""Share of a growth: `increase` extrapolates by up to a second at both ends, what runs at a switch
is counted in part, and vLLM counts some things a step later."""
FEW = 40
"""Tokens, or observations: steps under way when vLLM's page is read."""
WINDOW = "15m"


def test_what_prometheus_sees_grow_is_what_grew_while_it_was_observed(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    scraping = tmp_path / "prometheus"
    scraping.mkdir()
    with observed(vllm_python, models("llama"), tmp_path, *SMALL, start_seconds=600) as vllm:
        outgrow(vllm.server)  # what was before must not come again
        vllm.settle()
        truth = Truth(vllm.server.url)
        with prometheus(vllm.url.removeprefix("http://"), scraping) as watching:
            with busy(vllm.server):
                for _ in range(CYCLES):
                    time.sleep(PHASE_SECONDS)
                    ordered(vllm, on=False)
                    with truth.unobserved():
                        time.sleep(PHASE_SECONDS)
                        ordered(vllm, on=True)
                time.sleep(PHASE_SECONDS)
            seen = watching_ended(vllm, watching, truth)
        assert_true(seen, truth)


class Truth:
    """Growth of vLLM's own counts, under our names."""

    def __init__(self, url: str) -> None:
        self._reader = PageReader(f"{url}/metrics", "vllm")
        self._before = self._counts()
        self.unseen: Counter[str] = Counter()
        """The part of this that came while the observer was off."""

    def grown(self) -> Counter[str]:
        return _difference(self._counts(), self._before)

    @contextmanager
    def unobserved(self) -> Iterator[None]:
        before = self._counts()
        yield
        self.unseen.update(_difference(self._counts(), before))

    def _counts(self) -> Counter[str]:
        time.sleep(1.1)  # a reading is kept for a second
        found: list[Any] = []

        def read() -> bool:
            found[:] = self._reader.read().engines.values()
            return bool(found)

        wait_for(read, "vLLM's page is read", 120)  # a busy machine answers late
        (reading,) = found
        counts: Counter[str] = Counter()
        for name, values in reading.values.items():
            if metric(name).kind == "counter":
                counts[name] = int(sum(values.values()))
        for name, buckets in reading.histograms.items():
            counts[f"{name}_count"] = int(buckets.counts[-1][1])
        return counts


def _difference(after: Counter[str], before: Counter[str]) -> Counter[str]:
    return Counter({name: after[name] - before[name] for name in after})


@contextmanager
def busy(server: VllmServer) -> Iterator[None]:
    """Requests that preempt each other, all the time."""
    ending = threading.Event()

    def run() -> None:
        for seed in itertools.count(1):
            if ending.is_set():
                return
            outgrow(server, seed)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def ordered(vllm: Observed, *, on: bool) -> None:
    assert switch(vllm.replay.endpoint, on=on, seconds=60).state == ("on" if on else "off")


def watching_ended(vllm: Observed, watching: Prometheus, truth: Truth) -> dict[str, float]:
    """Increases by name, once all has been scraped; of each name's series, none went back."""
    vllm.server.wait_idle()
    time.sleep(5)
    counts = '{__name__=~"kvscope_.+(_total|_count|_sum|_bucket)",model_name!=""}'
    back = watching.labelled(f"resets({_named(counts)}[{WINDOW}:1s]) > 0")
    assert not back, back
    known = f"count by (name) (last_over_time({_named(counts)}[{WINDOW}:1s]))"
    names = {labels["name"] for labels, _ in watching.labelled(known)}
    assert {"kvscope_preemptions_total", "kvscope_inter_token_latency_seconds_count"} <= names
    return {
        name: sum(watching.ask(f'increase({name}{{model_name!=""}}[{WINDOW}])')) for name in names
    }


def _named(counts: str) -> str:
    """Each series with its name in a label: functions of a range leave none."""
    return f'label_replace({counts}, "name", "$1", "__name__", "(.+)")'


def assert_true(seen: dict[str, float], truth: Truth) -> None:
    """Compare every count that vLLM's own page has as well."""
    grown = truth.grown()
    of_front_end = front_end_of("vllm")
    compared = 0
    wrong = []
    for name in sorted(seen.keys() & grown.keys()):
        family = metric(name.removesuffix("_count")).family
        most = grown[name]
        stays = family in of_front_end or not metric(name.removesuffix("_count")).events
        least = most - (0 if stays else truth.unseen[name])
        print(name, seen[name], least, most)
        low, high = least * (1 - SLACK) - FEW, least * (1 + SLACK) + FEW
        compared += 1
        if not low <= seen[name] <= high:
            wrong.append(f"{name} grew by {seen[name]:.0f}, and vLLM counted {least} of {most}")
    assert not wrong, wrong
    assert compared > 8
