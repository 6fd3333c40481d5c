"""The observer on a real scheduler of vLLM, without a model: exact at every step, harmless always.

Requests are random, and so are aborts, preemptions, and resets. The driver compares the replayed
ledger with the pool: references, names and order of eviction of every block.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kvscope_events.observers.vllm.hooks import HOOKS
from tests.vllm.driven import run_in_vllm

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = 200
MODES = (
    "sync",
    "async-force",
    "hybrid",
    "hybrid-async-force",
    "swa-async",
    "prio",
    "nocache",
    "deferred-async-force",
    "partial",
    "partial-async-force",
    "spec",
    "spec-async",
    "eagle-async-force",
    "hybrid-eagle",
)
SMOKE = "sync"
"""One mode of a real vLLM runs in `make test`; three and what is broken nightly, others weekly."""
NIGHTLY = {"async-force", "hybrid", "spec"}
WEEKLY = set(MODES) - NIGHTLY - {SMOKE}
SWITCHED = ("sync", "async-force", "hybrid-async-force", "deferred-async-force", "partial", "spec")
"""Modes in which the observer goes off and on."""


def by_mode(modes: Iterable[str]) -> pytest.MarkDecorator:
    marks = {mode: [pytest.mark.nightly] for mode in MODES if mode != SMOKE}
    for mode in WEEKLY:
        marks[mode].append(pytest.mark.weekly)
    params = [pytest.param(mode, marks=marks.get(mode, [])) for mode in modes]
    return pytest.mark.parametrize("mode", params)


BY_MODE = by_mode(MODES)


class Driven:
    """Findings of each mode. The smoke run is one process, and so are the nightly modes and the
    weekly ones, on first use, since vLLM takes ten seconds to import."""

    def __init__(self, python: Path, model: Path, factory: pytest.TempPathFactory) -> None:
        self._python, self._model, self._factory = python, model, factory
        self._found: dict[str, Any] = {}

    def __getitem__(self, mode: str) -> dict[str, Any]:
        if mode not in self._found:
            modes = [SMOKE, *_cycled(SMOKE)]
            if mode not in modes:
                is_weekly = mode.removeprefix("bare-").removeprefix("switched-") in WEEKLY
                modes = [m for m in MODES if m != SMOKE and (m in WEEKLY) == is_weekly]
                modes += [one for m in SWITCHED if m in modes for one in _cycled(m)]
            command = ("tests.vllm.drive", ",".join(modes), str(self._model), "--steps", str(STEPS))
            lines, _ = run_in_vllm(self._python, _short_folder(self._factory), *command)
            self._found |= dict(zip(modes, lines, strict=True))
        found: dict[str, Any] = self._found[mode]
        return found


@pytest.fixture(scope="module")
def driven(
    vllm_python: Path, models: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Driven:
    return Driven(vllm_python, models("llama"), tmp_path_factory)


@pytest.fixture(scope="module")
def broken(
    vllm_python: Path, models: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Any], str]:
    folder = _short_folder(tmp_path_factory)
    return run_in_vllm(vllm_python, folder, "tests.vllm.broken", str(models("llama")))


def _short_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("v")
    folder.chmod(0o700)  # a socket's directory is ours alone
    return folder


@BY_MODE
def test_the_replayed_ledger_is_the_pool_at_every_step(driven: Driven, mode: str) -> None:
    found = driven[mode]
    assert found["live"]
    assert found["compared"] >= STEPS
    problems = {"differing": found["differing"], "examples": found["examples"]}
    assert problems == {"differing": {}, "examples": []}
    assert found["violations"] == found["self_check_differences"] == 0


@BY_MODE
def test_lookups_and_tokens_are_those_that_vllm_counts(driven: Driven, mode: str) -> None:
    found = driven[mode]
    assert found["queried"][0] == found["queried"][1]
    assert found["hit"][0] == found["hit"][1]
    assert found["tokens"]["output"] == found["tokens"]["finished"] > 0
    assert (found["queried"][0] > 0) == ("nocache" not in mode)


@BY_MODE
def test_every_request_ends_once_and_nothing_is_kept(driven: Driven, mode: str) -> None:
    found = driven[mode]
    events = found["events"]
    assert events["RequestArrived"] == events["SequenceAdded"] == found["requests"]
    assert events["SequenceFinished"] == events["RequestFinished"] == found["requests"]
    assert found["tracked"] == 0
    assert found["idle_snapshot"]
    if "partial" not in mode:  # copies are held for several requests at once
        assert found["left_over"] == 0


@by_mode(mode for mode in MODES if mode.startswith(("hybrid", "partial")))
def test_groups_are_those_of_vllms_own_lists_and_lookups(driven: Driven, mode: str) -> None:
    """Its look-up by group is called beside each admission, its lists are read at each step."""
    found = driven[mode]["groups"]
    assert found["compared"] > STEPS // 4  # async: not while a step is in flight
    assert found["examples"] == []
    assert found["lookups"] > 0
    assert found["lookups_equal"]
    assert found["alone"] == found["alone_by_fold"]
    assert found["vetoed"] == sum(found["vetoed_by_fold"].values())


@BY_MODE
def test_the_bill_of_preemption_is_that_of_plain_loops(driven: Driven, mode: str) -> None:
    bill, preemptions = driven[mode]["bill"], driven[mode]["events"].get("RequestPreempted", 0)
    assert bill["agrees"]
    assert sum(bill["states"].values()) == preemptions
    assert bill["states"].keys() <= {"resumed", "ended"}
    assert bill["wanted"] == bill["causes"].get("out_of_blocks", 0)
    # Frees that wait for steps in flight may come after the victim has resumed.
    assert bill["unknown_takers"] == 0 or "deferred" in mode
    assert (bill["taken"] > 0) == (preemptions > 0)


def test_the_smoke_run_reaches_preemption(driven: Driven) -> None:
    assert driven[SMOKE]["events"]["RequestPreempted"] > 0
    assert driven[SMOKE]["events"]["RequestResumed"] > 0


@pytest.mark.nightly
def test_the_modes_reach_what_they_are_for(driven: Driven) -> None:
    assert driven["async-force"]["forced"] > 0
    assert driven["hybrid"]["causes"]["BlocksReleased out_of_window"] > 0
    assert driven["partial"]["causes"]["BlocksShared cow"] > 0
    assert driven["partial"]["events"]["ContentDropped"] > 0
    spec = driven["spec"]["tokens"]
    assert spec["decode"] > spec["output"]  # drafts that were rejected


ABSENT = {"KVCacheManager.can_fit_full_sequence"}
"""Methods that only older releases than this one have."""


@pytest.mark.nightly
def test_each_function_of_ours_was_broken_in_turn(broken: tuple[list[Any], str]) -> None:
    _, *lines = broken[0]
    parts = [(f"{h.owner}.{h.method}", p) for h in HOOKS for p in ("before", "after")]
    wanted = [part for part, h in zip(parts, _twice(HOOKS), strict=True) if getattr(h, part[1])]
    here = [part for part in wanted if part[0] not in ABSENT]
    assert [(line["method"], line["part"]) for line in lines if "method" in line] == here


@pytest.mark.nightly
def test_a_broken_observer_goes_off_and_the_scheduler_goes_on(
    broken: tuple[list[Any], str],
) -> None:
    bare, *lines = broken[0]
    for line in lines:
        if "method" not in line:
            continue
        assert line["decisions"] == bare["decisions"], line
        assert line["off"], line
        assert line["restored"], line
        assert [line["method"] in reason for reason in line["reasons"]] == [True], line
        said = f"kvscope: off: LookupError in {line['method']}: broken on purpose."
        assert said in broken[1]


@pytest.mark.nightly
def test_a_vllm_that_differs_is_left_alone(broken: tuple[list[Any], str]) -> None:
    bare, *lines = broken[0]
    found = {line["change"]: line for line in lines if "change" in line}
    assert all(line["off"] for line in found.values())
    assert all(line["decisions"] == bare["decisions"] for line in found.values())
    assert found["renamed_parameter"]["untouched"]
    assert found["missing_method"]["untouched"]
    said = [line for line in broken[1].splitlines() if "kvscope: off: looked for" in line]
    assert len(said) == 2
    assert "BlockPool.touch(self, blocks), found (self, things)" in said[0]
    assert "taken_socket" in found
    assert "Set KVSCOPE_OBSERVER_DIR to another directory" in broken[1]
    assert "Scheduler._free_request(self, request), found no such method" in said[1]


@by_mode(SWITCHED)
def test_off_and_on_fifty_times_it_reports_the_pool_and_changes_nothing(
    driven: Driven, mode: str
) -> None:
    plain, found = (driven[name] for name in _cycled(mode))
    assert found["decisions"] == plain["decisions"]
    assert found["events"]["ObserverStopped"] >= 50
    assert min(found["seen"]["off"], found["seen"]["on"]) > 50
    assert found["seen"]["wrapped_while_off"] == found["seen"]["wrong_groups"] == 0
    assert found["compared"] >= 50
    problems = {"differing": found["differing"], "examples": found["examples"]}
    assert problems == {"differing": {}, "examples": []}
    assert found["live"]
    assert found["violations"] == found["self_check_differences"] == 0
    assert set(found["idle"].values()) == {True}


def _cycled(mode: str) -> list[str]:
    """The same requests, unobserved and with an observer that goes off and on."""
    return [f"bare-{mode}", f"switched-{mode}"]


@pytest.mark.nightly
def test_layers_that_have_no_words_in_the_contract_are_refused_by_name(
    vllm_python: Path, models: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each scheduler is made of vLLM's own classes, as far as this version has them."""
    folder = _short_folder(tmp_path_factory)
    lines, _ = run_in_vllm(vllm_python, folder, "tests.vllm.refused", str(models("llama")))
    known, own = "looked for a known kind of layers, found", "vllm.v1.core.single_type_kv_cache"
    vllms = {
        "hisparse": f"{known} {own}_manager.HiSparseSourceManager in group 0",
        "circular": f"{known} {own}_manager.CircularBufferManager in group 1",
        "rswa": f"{known} {own}_manager.RSWAManager in group 0",
        "encoder-nocache": f"{known} {own}_manager.CrossAttentionManager in group 1",
    }
    others = {
        "second_pool": "the layers of this model keep their blocks in several pools",
        "manager_of_a_plugin": f"{known} other_platform.OtherManager in group 0",
    }
    assert lines == [
        *(
            {
                "case": case,
                "observed": False,
                "said": [f"off: {said}. vLLM runs on, unobserved."],
                "heard": said,
            }
            for case, said in vllms.items()
        ),
        *({"case": case, "before": None, "said": [said]} for case, said in others.items()),
    ]


def _twice(hooks: tuple[Any, ...]) -> list[Any]:
    return [hook for hook in hooks for _ in range(2)]
