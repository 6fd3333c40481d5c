"""The observer in SGLang's real scheduler: at each step the events alone lead to its own counts."""

from pathlib import Path

import pytest

from tests.sglang.driven import REQUESTS, Driven, wrong_sums
from tests.sglang.scenarios import SCENARIOS
from tests.support.checkpoints import sizes
from tests.support.states import PHASES

pytestmark = [pytest.mark.sglang, pytest.mark.nightly, pytest.mark.timeout(900)]

RETRACTING = "p16-retracted"
WEEKLY = (
    *("p1", "p1-overlap", "p1-unnamed", "p1-off", "p1-chunked", "p1-mixed", "p1-lfu"),
    *("p16", "p16-off", "p16-chunked", "p16-priority", "p16-writeback"),
)
BY_SCENARIO = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.weekly] if name in WEEKLY else [])
        for name in SCENARIOS
    ],
)


@pytest.fixture(scope="module")
def driven(sglang_python: Path, model: Path, environment: dict[str, str]) -> Driven:
    return Driven(sglang_python, model, environment, seldom=WEEKLY)


@BY_SCENARIO
def test_the_events_lead_to_sglangs_own_counts_at_each_step(driven: Driven, name: str) -> None:
    run = driven[name]
    found = run["found"]
    assert run["live"]
    assert run["differences"] == 0
    assert found["steps"] > 200
    assert found.get("differing_counts", 0) == found.get("differing_chunks", 0) == 0, run[
        "examples"
    ]
    assert found["arrived"] == found["finished"] == REQUESTS


@BY_SCENARIO
def test_each_step_says_why_it_admitted_no_more(driven: Driven, name: str) -> None:
    told, expected = driven[name]["stops"]
    assert told == expected
    limit = "tokens" if "--chunked-prefill-size" in SCENARIOS[name].arguments else "blocks"
    assert {"empty", limit} <= set(told)


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
    assert run["metrics"]["prefill_effective_tokens_total:input"] > 0
    assert list(wrong_sums(run)) == []


@BY_SCENARIO
def test_names_are_dropped_once_a_step_however_often_the_observer_ends(
    driven: Driven, name: str
) -> None:
    """The tree goes on to report them, and each wrapper that drops them costs every step."""
    assert driven[name]["discards"] == int(SCENARIOS[name].names)


@BY_SCENARIO
def test_the_parts_of_its_start_are_reported_and_leave_no_hook(
    driven: Driven, name: str, model: Path
) -> None:
    start = driven[name]["start"]
    assert start["phases"] == [part for part in PHASES if part != "profile"]
    assert start["ended"]
    assert start["place"] == ["0", "0", True]
    assert (start["read"], start["files"]) == sizes(model)
    assert start["hooked"] == []


def test_the_load_evicts_retracts_aborts_and_loads_from_the_host(driven: Driven) -> None:
    assert driven["p16-overlap"]["found"]["evicted_tokens"] > 1000
    assert driven["p16-overlap"]["replies"]["aborted"] > 2
    assert driven[RETRACTING]["found"]["preemptions"] > 50
    assert driven["p16-hicache"]["found"]["first_loaded_tokens"] > 100
