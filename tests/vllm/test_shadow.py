"""Simulated pools of several groups against a vLLM's real scheduler with pools of those sizes.

Without a model, whose tokens do not matter here. Where requests are admitted in the same order at
every size, each lookup must find exactly what vLLM's own finds, to the block.
"""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kvscope_events.events import Batch, PoolCreated, PoolSnapshot, PrefixLookup
from kvscope_exporter.state.simulation.follower import Follower
from tests.support.process import SOURCES
from tests.vllm.driven import SECONDS
from tests.vllm.kept import kept
from tests.vllm.shadow_runs import FACTORS, Case

pytestmark = [pytest.mark.vllm, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(900)]

POOLS = {"gemma": 181, "gptoss": 121, "align": 71, "all": 121}
"""Blocks, by layout: two windows and full attention; one and one; a state of either cache mode."""
WINDOWS = ("gemma", "gptoss")
Found = list[tuple[int, int, bool]]
"""Request, tokens found, and whether it had been preempted; in the order of admission."""


def cases() -> list[Case]:
    made = []
    for layout, blocks in POOLS.items():
        sync, overlapped = f"sync-{layout}", f"async-{layout}"
        for retention in (64, None) if layout in ("gemma", "align") else (0,):
            name = f"{layout}-keeps-{retention}"
            made.append(Case(name=name, mode=sync, blocks=blocks, retention=retention))
        made += [
            Case(name=f"{layout}-large", mode=sync, blocks=3 * blocks, requests=160, quarter=True),
            Case(name=f"{layout}-chunks", mode=sync, blocks=blocks, budget=72),
            Case(
                name=f"{layout}-retaining",
                mode=sync,
                blocks=blocks,
                requests=120,
                systems=8,
                system_tokens=400,
                user_tokens=120,
                turns=1,
                retaining=True,
            ),
            Case(name=f"{layout}-async-chunks", mode=overlapped, blocks=blocks, budget=72),
            Case(
                name=f"{layout}-several",
                mode=sync,
                blocks=2 * blocks,
                running=4,
                every=5,
                conversations=32,
            ),
            Case(
                name=f"{layout}-preempted",
                mode=sync,
                blocks=blocks + 10,
                requests=120,
                running=8,
                every=1,
                conversations=32,
                output_tokens=60,
            ),
        ]
    made.append(
        Case(
            name="gemma-crowded",
            mode="sync-gemma",
            blocks=111,
            requests=200,
            running=8,
            budget=2048,
            conversations=24,
            systems=4,
            system_tokens=200,
        )
    )
    return made


CASES = {case.name: case for case in cases()}
ALIKE = [
    case.name
    for case in CASES.values()
    if not case.retaining
    if case.running == 1 or ("several" in case.name and case.name.startswith(WINDOWS))
]
"""Those in which all sizes admit requests at the same time."""


NIGHTLY = {"gemma-chunks", "align-chunks", "gemma-preempted"}
"""The others run weekly."""


def by_name(names: Sequence[str]) -> list[Any]:
    return [
        name if name in NIGHTLY else pytest.param(name, marks=pytest.mark.weekly) for name in names
    ]


def by_layout(kind: str) -> list[Any]:
    """Names of each layout's case of a kind."""
    return by_name([f"{layout}-{kind}" for layout in POOLS])


class Served:
    """Events, and what vLLM found by size, of each case. Those that run nightly are one process
    and all others a second one, on first use, since vLLM takes ten seconds to import."""

    def __init__(self, python: Path, model: Path, folder: Path) -> None:
        folder.chmod(0o700)  # of its sockets
        self._python, self._model, self._folder = python, model, folder
        self._found: dict[str, dict[float, Found]] = {}

    def __getitem__(self, name: str) -> dict[float, Found]:
        if name not in self._found:
            self._serve([case for case in CASES if (case in NIGHTLY) == (name in NIGHTLY)])
        return self._found[name]

    def events(self, name: str) -> list[Batch]:
        return kept(self._folder / f"{name}.events")

    def _serve(self, names: Sequence[str]) -> None:
        ran = subprocess.run(
            [
                *(str(self._python), "-m", "tests.vllm.shadow_runs"),
                *(str(self._model), str(self._folder)),
            ],
            input="".join(json.dumps(asdict(CASES[name])) + "\n" for name in names),
            cwd=self._folder,
            env={
                **os.environ,
                "PYTHONPATH": SOURCES,
                "KVSCOPE_OBSERVER_DIR": str(self._folder),
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        for line in ran.stdout.splitlines():
            if line.startswith("{"):
                answer = json.loads(line)
                of_case = self._found.setdefault(answer["name"], {})
                of_case[answer["factor"]] = [tuple(one) for one in answer["found"]]


@pytest.fixture(scope="module")
def served(
    vllm_python: Path, models: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Served:
    return Served(vllm_python, models("llama"), tmp_path_factory.mktemp("s"))


def simulated(
    batches: Sequence[Batch], factors: Sequence[float], *, retaining: bool = False
) -> dict[float, Found]:
    """Hits at other sizes, from the stream of one; at 0, of one that keeps every window."""
    found: dict[float, Found] = {factor: [] for factor in factors}
    if retaining:
        found[0.0] = []
    follower: Follower | None = None
    block_size = 0

    def noted(event: PrefixLookup, blocks: Sequence[int]) -> None:
        for factor, hit in zip(found, blocks, strict=True):
            found[factor].append((event.sequence - 1, block_size * hit, event.resumed))

    for event in (event for batch in batches for event in batch.events):
        if follower is None and isinstance(event, PoolCreated | PoolSnapshot):
            block_size, usable = event.block_size, event.num_blocks - event.reserved
            sizes = [int(factor * usable) for factor in factors]
            follower = Follower(event, sizes, noted, usable if retaining else 0)
        elif follower is not None:
            follower.take(event)
    assert follower is not None
    follower.settle()
    follower.check()
    return found


@pytest.mark.parametrize("name", by_name(ALIKE))
def test_every_lookup_at_every_size_finds_what_a_vllm_of_that_size_finds(
    served: Served, name: str
) -> None:
    real = served[name]
    factors = CASES[name].factors
    found = simulated(served.events(name), factors)
    assert found == real
    totals = [sum(hit for _, hit, _ in found[factor]) for factor in sorted(factors)]
    assert totals[0] < totals[-1], "the sizes make no difference: nothing was tested"


@pytest.mark.parametrize("name", by_layout("retaining"))
def test_a_pool_that_keeps_every_window_finds_what_vllm_would_find_if_it_did(
    served: Served, name: str
) -> None:
    real = served[name]
    found = simulated(served.events(name), (1.0,), retaining=True)
    assert found == {factor: real[factor] for factor in (1.0, 0.0)}
    now, then = (sum(hit for _, hit, _ in found[factor]) for factor in (1.0, 0.0))
    if name.startswith(WINDOWS):
        assert then > 1.2 * now


@pytest.mark.parametrize("name", by_layout("preempted"))
def test_the_present_size_finds_what_vllm_found_through_preemptions(
    served: Served, name: str
) -> None:
    real = served[name]
    assert simulated(served.events(name), (1.0,))[1.0] == real[1.0]


@pytest.mark.parametrize("name", by_layout("preempted"))
def test_larger_sizes_are_near_where_they_would_not_have_preempted(
    served: Served, name: str
) -> None:
    real = served[name]
    found = simulated(served.events(name), FACTORS)
    for factor in (2.0, 4.0):
        predicted, truth = (
            sum(hit for _, hit, resumed in one if not resumed)
            for one in (found[factor], real[factor])
        )
        assert predicted == pytest.approx(truth, rel=0.05), factor


def test_while_requests_wait_larger_pools_find_at_most_what_is_simulated(served: Served) -> None:
    """They admit some earlier, and equal beginnings are computed at the same time."""
    real = served["gemma-crowded"]
    expected = simulated(served.events("gemma-crowded"), list(real))
    for factor in real:
        found, said = (
            sum(tokens for _, tokens, resumed in lookups if not resumed)
            for lookups in (real[factor], expected[factor])
        )
        print(f"{factor} times the pool: {found:,} tokens found, {said:,} simulated")
        assert found == said if factor == 1 else found <= said
