"""Injected pods of every kind of object, their containers as processes around real vLLMs."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.inject.run import run
from tests.support.waiting import wait_for
from tests.vllm.image import Image
from tests.vllm.injected_manifests import FILES
from tests.vllm.pods import Running, running
from tests.vllm.server import free_port

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly),
    *(pytest.mark.slow, pytest.mark.timeout(600)),
]
QUESTIONS = ["ab " * 200, "cd " * 300]
ONE_ENGINE_FOR_TWO = ("two_hosts", "two_hosts_of_kserve")
"""Files whose two pods are one server: the first one's API server asks both engines."""


@pytest.fixture(scope="module")
def image(
    vllm_python: Path, models: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Image:
    return Image(vllm_python, models("llama"), tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("name", FILES)
def test_injected_vllms_are_observed_and_their_ledgers_balance(name: str, image: Image) -> None:
    outcome = run(FILES[name], "--user=1000")
    assert outcome.code == 0, outcome.said
    group = ("--data-parallel-rpc-port", str(free_port())) if name in ONE_ENGINE_FOR_TWO else ()
    with (
        tempfile.TemporaryDirectory(prefix="kvs-") as folder,
        running(outcome.text, image, Path(folder), *group) as pods,
    ):
        assert len(pods) == 2
        asked = pods[:1] if group else pods
        for pod in asked:
            for _ in range(8 if group else 4):
                pod.server.complete(QUESTIONS, 32)
        for pod in pods:
            _is_observed(pod)


def test_a_server_that_waits_for_nothing_of_ours_is_observed_or_serves_on_without_it(
    image: Image,
) -> None:
    """The second one's VLLM_PLUGINS names a plugin that is not there."""
    outcome = run(FILES["workloads"], "--user=1000", "--fail-open")
    assert outcome.code == 0, outcome.said
    with (
        tempfile.TemporaryDirectory(prefix="kvs-") as folder,
        running(outcome.text, image, Path(folder), unpulled=[1]) as (observed, bare),
    ):
        for pod in (observed, bare):
            for _ in range(4):
                pod.server.complete(QUESTIONS, 32)
        _is_observed(observed)
        assert "Failed to load plugin" not in bare.server.log
        assert "Traceback" not in bare.server.log


def _is_observed(pod: Running) -> None:
    assert pod.sidecar is not None
    wait_for(
        lambda: sum(pod.samples("kvscope_prefix_cache_hit_tokens_total")) > 0,
        f"hits on the page of the sidecar\n{pod.sidecar.text}\n{pod.server.tail()}",
    )
    assert set(pod.samples("kvscope_source_up")) == {1.0}, pod.sidecar.text
    assert pod.samples("kvscope_kv_ledger_imbalance_blocks") == [0.0]
    assert set(pod.samples("kvscope_observer_stopped")) == {0.0}
    assert pod.samples("kvscope_kv_blocks")
