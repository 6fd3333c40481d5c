"""The observer in SGLang's real scheduler: at each step the events alone lead to its own counts."""

import functools
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.sglang.scenarios import SCENARIOS

pytestmark = [pytest.mark.sglang, pytest.mark.nightly, pytest.mark.timeout(900)]

REQUESTS = 40
RETRACTING = "p16-retracted"
TOGETHER = [name for name in SCENARIOS if not SCENARIOS[name].environment]
"""Scenarios of one process, which imports SGLang once."""
BY_SCENARIO = pytest.mark.parametrize("name", list(SCENARIOS))


def run_scenarios(
    python: Path,
    model: Path,
    environment: dict[str, str],
    names: list[str],
    requests: int = REQUESTS,
) -> list[dict[str, Any]]:
    """Run them in one process; their findings in order."""
    with tempfile.TemporaryDirectory(prefix="kvscope-") as folder:  # short: for sockets
        sockets = {"KVSCOPE_OBSERVER_DIR": folder, "KVSCOPE_OBSERVER_NAMES": "on"}
        done = subprocess.run(
            [str(python), "-m", "tests.sglang.drive", str(model), str(requests), *names],
            env={**environment, **sockets},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert len(lines) == len(names), done.stderr[-4000:]
    return [json.loads(line.removeprefix("FOUND ")) for line in lines]


class Driven:
    """Findings by scenario; they run at first use, and only once."""

    def __init__(self, python: Path, model: Path, environment: dict[str, str]) -> None:
        self._run = functools.cache(
            lambda *names: run_scenarios(python, model, environment, list(names))
        )

    def __getitem__(self, name: str) -> dict[str, Any]:
        names = TOGETHER if name in TOGETHER else [name]
        return next(run for run in self._run(*names) if run["scenario"] == name)


@pytest.fixture(scope="module")
def driven(sglang_python: Path, model: Path, environment: dict[str, str]) -> Driven:
    return Driven(sglang_python, model, environment)


@BY_SCENARIO
def test_the_events_lead_to_sglangs_own_counts_at_each_step(driven: Driven, name: str) -> None:
    run = driven[name]
    found = run["found"]
    assert run["live"]
    assert run["differences"] == 0
    assert found["steps"] > 200
    assert found.get("differing_counts", 0) == 0, run["examples"]
    assert found["arrived"] == found["finished"] == REQUESTS


@BY_SCENARIO
def test_the_names_are_those_of_the_pages_in_the_tree(driven: Driven, name: str) -> None:
    run = driven[name]
    found = run["found"]
    named = found["steps"] if SCENARIOS[name].names else 0
    assert found.get("named_steps", 0) == named
    assert found.get("differing_names", 0) == 0, run["examples"]


@BY_SCENARIO
def test_sums_equal_those_of_sglangs_own_page(driven: Driven, name: str) -> None:
    run = driven[name]
    found, page = run["found"], run["metrics"]
    assert found.get("evicted_tokens", 0) == page.get("evicted_tokens_total", 0)
    assert found.get("preemptions", 0) == page.get("num_retracted_requests_total", 0)
    assert found["prefill_tokens"] == page["realtime_tokens_total:prefill_compute"]
    assert found["emitted"] == found["output_tokens"]
    hits, loaded = found["first_hit_tokens"], found["first_loaded_tokens"]
    assert hits == page["prefill_effective_tokens_total:device_hit"]
    assert loaded == page["prefill_effective_tokens_total:host_hit"]
    computed = found["first_queried_tokens"] - hits - loaded
    # A prompt that ends in the middle of its chunks was not computed whole.
    assert computed >= page["prefill_effective_tokens_total:input"]
    if "--chunked-prefill-size" not in SCENARIOS[name].arguments:
        assert computed == page["prefill_effective_tokens_total:input"]
    if not found.get("preemptions"):
        # A request that ends while it waits after a retraction gets no reply with its tokens.
        assert found["prompt_tokens"] == run["replies"]["prompt"]
        assert found["output_tokens"] == run["replies"]["output"]


def test_the_load_evicts_retracts_aborts_and_loads_from_the_host(driven: Driven) -> None:
    assert driven["p16-overlap"]["found"]["evicted_tokens"] > 1000
    assert driven["p16-overlap"]["replies"]["aborted"] > 2
    assert driven[RETRACTING]["found"]["preemptions"] > 50
    assert driven["p16-hicache"]["found"]["first_loaded_tokens"] > 100


FAULTS = (
    "steps.Steps.queued",
    "steps.Steps.begins",
    "steps.Steps.extended",
    "steps.Steps.decoded",
    "steps.Steps.completed",
    "steps.Steps.row_freed",
    "pages.Pages.release_begins",
    "pages.Pages.published",
    "pages.Pages.inserted",
    "pages.Pages.evicted",
    "pages.Pages.locked",
    "content.Content.drain",
    "observer.Observer.flush",
)
"""Our methods that are broken, one at a time."""


@pytest.fixture(scope="module")
def faults(
    sglang_python: Path, model: Path, environment: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """By fault; without one first."""
    names = ["p16-overlap", *(f"p16-overlap!{fault}" for fault in FAULTS)]
    runs = run_scenarios(sglang_python, model, environment, names, requests=15)
    return {run["fault"]: run for run in runs}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_ours_ends_the_observer_and_nothing_else(
    faults: dict[str, dict[str, Any]], fault: str
) -> None:
    """Also the names, which the tree goes on to report, do not pile up."""
    run = faults[fault]
    assert not run["live"]
    assert run["wrapped"][0] > 10
    assert run["wrapped"][1] == 0
    assert run["left_over"] < 50
    assert run["replies"]["finished"] >= 1
    assert run["replies"]["finished"] == faults[""]["replies"]["finished"]
