"""Predicted hits of other pool sizes against SGLang's real scheduler on pools of these sizes."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    *(pytest.mark.sglang, pytest.mark.nightly, pytest.mark.weekly),
    pytest.mark.timeout(900),
]

REQUESTS = 1000
CASES = ("lru-500", "lru-1000", "lru-2000", "lru-1000-queue", "lfu-500")
NEAR = 0.01


@pytest.fixture(scope="module")
def runs(sglang_python: Path, model: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Findings by case."""
    with tempfile.TemporaryDirectory(prefix="kvscope-") as folder:  # short: for sockets
        done = subprocess.run(
            [str(sglang_python), "-m", "tests.sglang.sizes", str(model), str(REQUESTS), *CASES],
            env={**environment, "KVSCOPE_OBSERVER_DIR": folder},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert len(lines) == len(CASES), done.stderr[-4000:]
    found = [json.loads(line.removeprefix("FOUND ")) for line in lines]
    for run in found:
        assert run["live"]
        assert not run["differences"]
        assert run["finished"] == REQUESTS
    return {run["case"]: run for run in found}


def test_half_the_pool_and_twice_the_pool_find_what_was_predicted(runs: dict[str, Any]) -> None:
    predicted = runs["lru-1000"]["published"]
    half, same, twice = (runs[f"lru-{pages}"] for pages in (500, 1000, 2000))
    for other in (half, twice):  # a size changes when an answer comes, and so what is sent last
        assert other["queried"] == pytest.approx(same["queried"], rel=0.02)
    assert twice["found"] - half["found"] > 0.1  # the load depends on the size
    assert predicted["1"] == pytest.approx(same["found"], abs=NEAR)
    assert predicted["0.5"] == pytest.approx(half["found"], abs=NEAR)
    assert predicted["2"] == pytest.approx(twice["found"], abs=NEAR)


def test_no_size_is_shown_while_requests_wait_long(runs: dict[str, Any]) -> None:
    """SGLang renews what the first 128 of them ask for, each 32 passes of its scheduler."""
    run = runs["lru-1000-queue"]
    assert run["longest_queue"] > 50
    assert (run["published"], run["objection"]) == (None, "queue")


def test_no_size_is_shown_for_another_policy_though_the_present_one_agrees(
    runs: dict[str, Any],
) -> None:
    run = runs["lfu-500"]
    assert run["predicted"]["1"] == pytest.approx(run["found"], abs=NEAR)
    assert (run["published"], run["objection"]) == (None, "policy")
