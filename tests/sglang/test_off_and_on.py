"""The observer of an SGLang goes off and on: SGLang answers as without us, and all sums go on."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kvscope.doctor.switching import switch
from tests.sglang.conftest import REFERENCE, Unobserved
from tests.sglang.counters import GAUGES, disagreements
from tests.sglang.drive import GOES_OFF_AND_ON, UNOBSERVED
from tests.sglang.driven import REQUESTS, run_scenarios
from tests.sglang.http_load import ask, jobs
from tests.sglang.scenarios import IN_PYTHON, NAMED, PUBLISHING, SWITCHED
from tests.sglang.server import SMALL, Observed, observed
from tests.support.waiting import wait_for

pytestmark = [
    *(pytest.mark.sglang, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.slow),
    pytest.mark.timeout(900),
]

BY_SCENARIO = pytest.mark.parametrize("name", list(SWITCHED))
CYCLES = 20
"""Under each of two loads."""
AT_REST = 4
"""Cycles between which SGLang rests, so that all sums can be compared."""
FOLDED_SECONDS = 20.0


@pytest.fixture(scope="module")
def driven(
    sglang_python: Path, model: Path, environment: dict[str, str]
) -> dict[tuple[str, str], dict[str, Any]]:
    """By scenario and kind of run."""
    runs = {}
    # Variables are read at the import.
    together = [name for name in SWITCHED if not SWITCHED[name].environment]
    for names in (together, *([name] for name in SWITCHED if name not in together)):
        both = [f"{name}!{kind}" for name in names for kind in (UNOBSERVED, GOES_OFF_AND_ON)]
        for run in run_scenarios(sglang_python, model, environment, both):
            runs[run["scenario"], run["fault"]] = run
    return runs


@pytest.mark.weekly
@BY_SCENARIO
def test_a_scheduler_that_is_switched_decides_as_without_us(
    driven: dict[tuple[str, str], dict[str, Any]], name: str
) -> None:
    alone, run = (driven[name, kind] for kind in (UNOBSERVED, GOES_OFF_AND_ON))
    assert alone["wrapped"] == [0, 0]
    assert sum(map(len, alone["tokens"].values())) > REQUESTS
    assert run["tokens"] == alone["tokens"]
    assert run["replies"] == alone["replies"]
    assert run["published"] == alone["published"]
    assert bool(run["published"]) == (name == PUBLISHING)


@pytest.mark.weekly
@BY_SCENARIO
def test_after_each_return_the_events_lead_to_sglangs_own_counts(
    driven: dict[tuple[str, str], dict[str, Any]], name: str
) -> None:
    run = driven[name, GOES_OFF_AND_ON]
    found, seen = run["found"], run["seen"]
    assert run["live"]
    assert run["problems"] == run["said"] == run["examples"] == []
    assert run["differences"] == found.get("differing_counts", 0) == 0
    assert found["stops"] >= 50
    assert min(seen["on"], seen["off"]) > 50
    assert found["steps"] > 50


@pytest.mark.weekly
@BY_SCENARIO
def test_events_of_names_are_announced_only_where_pages_have_names(
    driven: dict[tuple[str, str], dict[str, Any]], name: str
) -> None:
    """Also those of a tier on the host, which is there without names as well."""
    tells = driven[name, GOES_OFF_AND_ON]["tells"]
    assert ("NamesStored" in tells) == (name in NAMED)
    assert ("TierCreated" in tells) == SWITCHED[name].has_tier


@pytest.mark.weekly
def test_a_tree_that_was_stopped_names_all_its_pages_again(
    driven: dict[tuple[str, str], dict[str, Any]],
) -> None:
    found = driven[IN_PYTHON, GOES_OFF_AND_ON]["found"]
    assert found["named_steps"] > found["steps"] / 2
    assert found.get("differing_names", 0) == 0


@pytest.mark.weekly
@BY_SCENARIO
def test_while_it_is_off_the_methods_are_sglangs_own(
    driven: dict[tuple[str, str], dict[str, Any]], name: str
) -> None:
    run = driven[name, GOES_OFF_AND_ON]
    assert run["seen"]["wrapped_while_off"] == 0
    assert run["wrapped"][0] == run["wrapped"][1] > 10
    assert run["seen"]["standing_in"] == 0 or name == PUBLISHING


@pytest.fixture(scope="module")
def switchable(
    sglang_python: Path,
    model: Path,
    unobserved: Unobserved,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Observed]:
    """A server without names. Runs beside no other: this file's name comes before theirs."""
    folder = tmp_path_factory.mktemp("switchable")
    with observed(sglang_python, model, folder, *SMALL, KVSCOPE_OBSERVER_NAMES="off") as running:
        yield running


def go(sglang: Observed, *, on: bool) -> None:
    """Its observer goes or comes back, and the page says so."""
    wanted = "on" if on else "off"
    found = switch(sglang.sockets, on=on, seconds=60)
    assert found.state == wanted, found
    place = sglang.sockets
    wait_for(lambda: sglang.value("kvscope_observer_stopped", endpoint=place) == (not on), wanted)
    assert sglang.value("kvscope_kv_ledger_imbalance_blocks") == (0 if on else None)


def while_serving(serve: Callable[[], None], act: Callable[[], None]) -> int:
    """Serve again and again until `act` is done; returns how often."""
    ending, rounds = threading.Event(), 0

    def work() -> None:
        nonlocal rounds
        while not ending.is_set():
            serve()
            rounds += 1

    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(work)
        try:
            act()
        finally:
            ending.set()
        served.result()
    return rounds


@pytest.mark.weekly
def test_off_and_on_under_load_the_tokens_stay(
    switchable: Observed, unobserved: Unobserved
) -> None:
    sglang, seeds = switchable, iter(range(1000))

    def reference() -> None:
        assert ask(sglang.server, REFERENCE) == unobserved.answers

    def many() -> None:
        ask(sglang.server, jobs(20, next(seeds), leaving=0.2))

    def cycles() -> None:
        for _ in range(CYCLES):
            go(sglang, on=False)
            go(sglang, on=True)

    said = sglang.server.log.count("kvscope: off: an operator switched it off")
    for serve in (reference, many):
        assert while_serving(serve, cycles) > 0
    offs = sglang.server.log.count("kvscope: off: an operator switched it off") - said
    assert offs == 2 * CYCLES
    assert set(sglang.server.said_by_us()) == {"observing", "off", "on"}
    sglang.rest()
    agree(lambda: of_gauges(sglang))
    assert sglang.value("kvscope_kv_ledger_imbalance_blocks") == 0


def of_gauges(sglang: Observed) -> list[str]:
    """Differences from SGLang's own page in the pool, and in who runs."""
    return disagreements(sglang.page(), sglang.server.page(), only=GAUGES)


def agree(differences: Callable[[], list[str]]) -> None:
    """Both pages say the same, once ours has all that was sent."""
    until = time.monotonic() + FOLDED_SECONDS
    while differences() and time.monotonic() < until:
        time.sleep(0.2)
    assert differences() == []


def test_after_each_return_every_sum_grows_as_sglangs_own(switchable: Observed) -> None:
    sglang = switchable
    ask(sglang.server, jobs(2, 99))
    sglang.rest()  # heard by now, so that the page's labels are those of later
    before = counters(sglang)
    for seed in range(AT_REST):
        go(sglang, on=False)
        ask(sglang.server, jobs(6, 100 + seed))
        sglang.rest()
        go(sglang, on=True)
        since = sglang.page(), sglang.server.page()
        ask(sglang.server, jobs(12, 200 + seed))
        sglang.rest()

        agree(partial(increases, sglang, since))
        assert sglang.value("kvscope_kv_ledger_imbalance_blocks") == 0
        now = counters(sglang)
        assert [name for name, value in before.items() if now[name] < value] == []
        before = now


def increases(sglang: Observed, since: tuple[str, str]) -> list[str]:
    return disagreements(sglang.page(), sglang.server.page(), since=since)


def counters(sglang: Observed) -> dict[str, float]:
    """Every series of ours that may never fall, by name and labels."""
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in sglang.page().splitlines()
        if line.startswith("kvscope_") and ("_total" in line or "_count" in line)
    }


def test_a_paused_sglang_is_switched(switchable: Observed) -> None:
    sglang = switchable
    sglang.server.pause()
    try:
        go(sglang, on=False)
        go(sglang, on=True)
    finally:
        sglang.server.resume()
    ask(sglang.server, jobs(4, 300))
    sglang.rest()
    agree(lambda: of_gauges(sglang))


@pytest.mark.weekly
def test_ranks_of_data_parallelism_are_switched_one_after_the_other(
    sglang_python: Path, model: Path, tmp_path: Path
) -> None:
    """While they sleep between requests, too."""
    options = (*SMALL, "--dp-size", "2", "--sleep-on-idle")
    variables = {"KVSCOPE_OBSERVER_NAMES": "off", "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    with observed(sglang_python, model, tmp_path, *options, **variables) as sglang:
        second = replace(sglang, sockets=sglang.sockets.replace("engine-0", "engine-1"))
        for seed in range(3):
            for rank in (sglang, second):
                go_of_rank(rank, on=False)
            ask(sglang.server, jobs(6, 400 + seed))
            for rank in (sglang, second):
                go_of_rank(rank, on=True)
            ask(sglang.server, jobs(12, 500 + seed))
        sglang.server.wait_idle()
        for engine in ("0", "1"):
            value = partial(sglang.value, engine=engine)
            wait_for(lambda value=value: value("kvscope_kv_blocks", state="active") == 0, "idle")
            assert (value("kvscope_kv_blocks", state="cached") or 0) > 0
            assert value("kvscope_kv_ledger_imbalance_blocks") == 0


def go_of_rank(rank: Observed, *, on: bool) -> None:
    """One of several goes or comes back."""
    assert switch(rank.sockets, on=on, seconds=10).state == ("on" if on else "off")
