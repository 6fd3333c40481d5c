"""Starts `tests.sglang.drive` in an SGLang's Python, and judges the sums that it finds."""

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tests.sglang.scenarios import SCENARIOS
from tests.sglang.server import ON_A_CPU
from tests.support.process import SOURCES

REQUESTS = 40
TOGETHER = [name for name in SCENARIOS if not SCENARIOS[name].environment]
"""Scenarios of one process, which imports SGLang once."""


def driver_environment(plugin: Path) -> dict[str, str]:
    """Variables under which SGLang runs on a CPU, with the observer's folder on its path."""
    return {**os.environ, "PYTHONPATH": f"{plugin}{os.pathsep}{SOURCES}", **ON_A_CPU}


def run_scenarios(
    python: Path,
    model: Path,
    environment: dict[str, str],
    names: list[str],
    requests: int = REQUESTS,
) -> list[dict[str, Any]]:
    """Run them in one process; their findings, in any order."""
    with tempfile.TemporaryDirectory(prefix="kvscope-") as folder:  # short: for sockets
        sockets = {"KVSCOPE_OBSERVER_DIR": folder, "KVSCOPE_OBSERVER_NAMES": "on"}
        done = subprocess.run(
            [str(python), "-m", "tests.sglang.drive", str(model), str(requests), *names],
            env={**environment, **sockets},
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert len(lines) == len(names), done.stderr[-4000:]
    return [json.loads(line.removeprefix("FOUND ")) for line in lines]


class Driven:
    """Findings by scenario; they run at first use, and only once."""

    def __init__(
        self,
        python: Path,
        model: Path,
        environment: dict[str, str],
        seldom: Collection[str] = (),
    ) -> None:
        """seldom: scenarios of which the others' process runs none."""
        self._seldom = frozenset(seldom)
        self._run = functools.cache(
            lambda *names: run_scenarios(python, model, environment, list(names))
        )

    def __getitem__(self, name: str) -> dict[str, Any]:
        names = [name]
        if name in TOGETHER:
            is_seldom = name in self._seldom
            names = [each for each in TOGETHER if (each in self._seldom) == is_seldom]
        return next(run for run in self._run(*names) if run["scenario"] == name)


def wrong_sums(run: dict[str, Any]) -> Iterator[str]:
    """Names the sums for which SGLang's own page has another value."""
    found, page = run["found"], run["metrics"]
    chunked = "--chunked-prefill-size" in SCENARIOS[run["scenario"]].arguments
    hits, loaded = found["first_hit_tokens"], found["first_loaded_tokens"]
    computed = found["first_queried_tokens"] - hits - loaded
    given_up = found.get("preemptions", 0)
    effective = "prefill_effective_tokens_total"
    pairs = {
        "evicted": (found.get("evicted_tokens", 0), page.get("evicted_tokens_total", 0)),
        "retracted": (given_up, page.get("num_retracted_requests_total", 0)),
        "prefill": (found["prefill_tokens"], page["realtime_tokens_total:prefill_compute"]),
        "emitted": (found["emitted"], found["output_tokens"]),
        "hit": (hits, page.get(f"{effective}:device_hit", hits)),
        "loaded": (loaded, page.get(f"{effective}:host_hit", loaded)),
        # A prompt that ends in the middle of its chunks was not computed whole.
        "computed": (computed, computed if chunked else page.get(f"{effective}:input", computed)),
    }
    if not given_up:
        # A request that ends while it waits after a retraction gets no reply with its tokens.
        pairs["prompt"] = found["prompt_tokens"], run["replies"]["prompt"]
        pairs["output"] = found["output_tokens"], run["replies"]["output"]
    for what, (ours, theirs) in pairs.items():
        if ours != theirs:
            yield f"{what}: {ours}, SGLang says {theirs}"
