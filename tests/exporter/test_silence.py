"""Silence of the parts of an engine that took requests, from real streams."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvscope_events.producers import VLLM_FRONT_END_EVENTS
from kvscope_exporter.targets.exporter import Exporter
from tests.exporter.page import value
from tests.exporter.test_presence import Scene, comes_to
from tests.scrape.cases.vllm import CURRENT_PAGE
from tests.support.http_peer import serving, text
from tests.support.waiting import wait_for

MINUTE_NS = 60_000_000_000


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    tmp_path.chmod(0o700)
    made = Scene(tmp_path)
    yield made
    made.close()


def silence(exporter: Exporter, part: str, engine: str = "0") -> float | None:
    return value(exporter, "kvscope_engine_silence_seconds", part=part, engine=engine)


def front_end(scene: Scene) -> None:
    scene.engine("api-0", worker="api-0", tells=sorted(VLLM_FRONT_END_EVENTS), ready=True)


def later(scene: Scene, exporter: Exporter, number: int) -> None:
    """A minute later, when those that live have been heard again."""
    scene.ahead_ns += MINUTE_NS
    wait_for(
        lambda: sum(target.source.up for target in exporter.targets) == number, "the others live"
    )


def test_a_scheduler_that_freezes_is_silent_while_its_front_end_and_its_worker_speak(
    scene: Scene,
) -> None:
    with serving({"/metrics": text(CURRENT_PAGE)}) as peer:
        exporter = scene.watch(url=peer.url)
        core = scene.engine()
        scene.worker()
        front_end(scene)
        wait_for(lambda: len(exporter.targets) == 3, "all are found")
        comes_to(exporter, "ready")
        for part in ("scheduler", "worker", "front_end"):
            assert (silence(exporter, part) or 0) < 5
        core.end()
        later(scene, exporter, 2)
        assert (silence(exporter, "scheduler") or 0) >= 60
        assert (silence(exporter, "worker") or 0) < 5
        assert (silence(exporter, "front_end") or 0) < 5


def test_one_of_two_ranks_is_silent(scene: Scene) -> None:
    exporter = scene.watch()
    scene.engine()
    second = scene.engine("engine-1", engine="1")
    wait_for(lambda: len(exporter.targets) == 2, "both are found")
    comes_to(exporter, "ready")
    second.end()
    later(scene, exporter, 1)
    assert (silence(exporter, "scheduler", "1") or 0) >= 60
    assert (silence(exporter, "scheduler", "0") or 0) < 5


def test_an_engine_that_loads_is_not_silent(scene: Scene) -> None:
    exporter = scene.watch()
    core = scene.engine(ready=False)
    front_end(scene)
    wait_for(lambda: len(exporter.targets) == 2, "both are found")
    core.end()
    later(scene, exporter, 1)
    assert silence(exporter, "scheduler") is None


def test_a_server_that_has_gone_is_told_by_its_state_alone(scene: Scene) -> None:
    exporter = scene.watch()
    core = scene.engine()
    comes_to(exporter, "ready")
    core.end()
    scene.ahead_ns += MINUTE_NS
    comes_to(exporter, "gone")
    assert silence(exporter, "scheduler") is None


def test_a_server_that_is_started_anew_loads_and_is_not_silent(scene: Scene) -> None:
    exporter = scene.watch()
    core = scene.engine()
    comes_to(exporter, "ready")
    core.end()
    scene.ahead_ns += MINUTE_NS
    comes_to(exporter, "gone")
    front_end(scene)
    wait_for(lambda: len(exporter.targets) == 2, "the new front end is found")
    comes_to(exporter, "loading")
    assert silence(exporter, "scheduler") is None
