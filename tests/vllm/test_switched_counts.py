"""A Prometheus beside a real vLLM whose observer goes off and on under load: no count jumps."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvscope.doctor.switching import switch
from kvscope_exporter.catalogue import metric
from kvscope_exporter.catalogue.metric import ENGINE
from kvscope_exporter.scrape import PageReader, front_end_of
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
SLACK = 0.1
"""Share of a growth: `increase` extrapolates by up to a second at both ends, and vLLM counts some
things a step later."""
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
            with busy(vllm.server) as load:
                for _ in range(CYCLES):
                    time.sleep(PHASE_SECONDS)
                    ordered(vllm, on=False)
                    with truth.unobserved(load):
                        time.sleep(PHASE_SECONDS)
                        ordered(vllm, on=True)
                time.sleep(PHASE_SECONDS)
            grown = truth.grown()
            seen = watching_ended(vllm, watching, grown)
        assert_true(seen, grown, truth)


class Load:
    """Requests that preempt each other, all the time, and no request between two rounds of them."""

    def __init__(self, server: VllmServer) -> None:
        self._server = server
        self._round = threading.Lock()
        self._pausing = threading.Event()
        self.ending = threading.Event()

    def run(self) -> None:
        for seed in itertools.count(1):
            while self._pausing.is_set():
                time.sleep(0.01)
            if self.ending.is_set():
                return
            with self._round:
                outgrow(self._server, seed)

    @contextmanager
    def between_rounds(self) -> Iterator[None]:
        self._pausing.set()
        try:
            with self._round:
                yield
        finally:
            self._pausing.clear()


class Truth:
    """Growth of vLLM's own counts, by a selector of our series for each."""

    def __init__(self, url: str) -> None:
        self._page = f"{url}/metrics"
        self._before = self._counts()
        self.unseen: Counter[str] = Counter()
        """The part of this that came while the observer was off."""
        self.in_part: Counter[str] = Counter()
        """The part that came afterwards, until all that ran at the observer's return had ended: it
        does not know these requests, and counts what their steps do alone."""

    def grown(self) -> Counter[str]:
        return _difference(self._counts(), self._before)

    @contextmanager
    def unobserved(self, load: Load) -> Iterator[None]:
        before = self._counts()
        yield
        on = self._counts()
        self.unseen.update(_difference(on, before))
        with load.between_rounds():
            self.in_part.update(_difference(self._counts(), on))

    def _counts(self) -> Counter[str]:
        reader = PageReader(self._page, "vllm")  # a new one: it keeps a reading for a second
        found: list[Any] = []

        def read() -> bool:
            found[:] = reader.read().engines.values()
            return bool(found)

        wait_for(read, "vLLM's page is read", 120)  # a busy machine answers late
        (reading,) = found
        counts: Counter[str] = Counter()
        for name, values in reading.values.items():
            if metric(name).kind != "counter":
                continue
            for key, value in values.items():
                own = zip(list(metric(name).labels)[len(ENGINE) :], key, strict=True)
                chosen = "".join(f',{label}="{each}"' for label, each in own if each)
                counts[f'{name}{{model_name!=""{chosen}}}'] = int(value)
        for name, buckets in reading.histograms.items():
            counts[f'{name}_count{{model_name!=""}}'] = int(buckets.counts[-1][1])
        return counts


def _difference(after: Counter[str], before: Counter[str]) -> Counter[str]:
    return Counter({name: after[name] - before[name] for name in after})


@contextmanager
def busy(server: VllmServer) -> Iterator[Load]:
    load = Load(server)
    thread = threading.Thread(target=load.run)
    thread.start()
    try:
        yield load
    finally:
        load.ending.set()
        thread.join()


def ordered(vllm: Observed, *, on: bool) -> None:
    assert switch(vllm.replay.endpoint, on=on, seconds=60).state == ("on" if on else "off")


def watching_ended(
    vllm: Observed, watching: Prometheus, selectors: Iterable[str]
) -> dict[str, float]:
    """Increases of those that the page had, once all has been scraped; no series went back."""
    vllm.server.wait_idle()
    time.sleep(5)
    counts = '{__name__=~"kvscope_.+(_total|_count|_sum|_bucket)",model_name!=""}'
    named = f'label_replace({counts}, "name", "$1", "__name__", "(.+)")'  # functions leave none
    back = watching.labelled(f"resets({named}[{WINDOW}:1s]) > 0")
    assert not back, back
    seen = {name: watching.ask(f"increase({name}[{WINDOW}])") for name in selectors}
    return {name: sum(increases) for name, increases in seen.items() if increases}


def assert_true(seen: dict[str, float], grown: Counter[str], truth: Truth) -> None:
    """Compare every count that vLLM's own page has as well."""
    of_front_end = front_end_of("vllm")
    wrong = []
    for name, increase in sorted(seen.items()):
        counted = metric(name.partition("{")[0].removesuffix("_count"))
        stays = counted.family in of_front_end or not counted.events
        most = grown[name] - (0 if stays else truth.unseen[name])
        least = most - (0 if stays else truth.in_part[name])
        print(name, round(increase), least, most)
        if not least * (1 - SLACK) - FEW <= increase <= most * (1 + SLACK) + FEW:
            wrong.append(f"{name} grew by {increase:.0f}, and vLLM counted {least} to {most}")
    assert not wrong, wrong
    told = {name.partition("{")[0] for name in seen}
    assert {"kvscope_preemptions_total", "kvscope_inter_token_latency_seconds_count"} <= told
    assert len(told) > 8
