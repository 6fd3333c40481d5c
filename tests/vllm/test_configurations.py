"""A sliding-window hybrid under load, an observer that fails there; several processes and hosts."""

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvscope_events.observers.vllm.tenant import TENANT_VARIABLE
from tests.support.operated import START_SECONDS
from tests.support.pages import sample
from tests.support.waiting import wait_for
from tests.vllm.counters import disagreements, total
from tests.vllm.front_end import assert_tenants
from tests.vllm.model import HYBRID
from tests.vllm.observed import PROMPTS, SMALL, Observed, load, observed
from tests.vllm.server import (
    VllmServer,
    free_port,
    kvscope_command,
    server_command,
    server_environment,
    started,
)

pytestmark = [pytest.mark.vllm, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(900)]

FAULT = "kvscope_events.observers.vllm.facts:Names.of_blocks"
"""The observer calls this for every block that becomes full."""
REQUESTS = 40
SERVE = (str(Path(__file__).with_name("serve_command.py")),)


@pytest.mark.weekly
def test_a_hybrid_and_an_observer_that_fails(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    """Layers of two kinds: blocks are given back in mid-request, and one hash names two of them."""
    with observed(vllm_python, models(HYBRID), tmp_path, *SMALL) as vllm:
        load(vllm.server)
        assert vllm.assert_equal() > 300
        groups = vllm.replay.ledger.groups
        assert sorted(group.kind for group in groups) == ["full_attention", "sliding_window"]
        assert disagreements(vllm.page(), vllm.server.page()) == []
        assert total(vllm.server.page(), "vllm:num_preemptions_total") > 0
        _sizes_are_vllms_own(vllm)
        _advice_declines(vllm)
        _fails(vllm)


def _sizes_are_vllms_own(vllm: Observed) -> None:
    """Sizes of all groups together, as in its log; ours are without the null block."""
    shown, own = map(_cache_configuration, (vllm.page(), vllm.server.page()))
    for label in ("kv_cache_size_tokens", "kv_cache_max_concurrency", "block_size"):
        assert shown[label] == own[label]
    tokens, sequences = int(own["kv_cache_size_tokens"]), float(own["kv_cache_max_concurrency"])
    assert f"KV cache size: {tokens:,} tokens" in vllm.server.log
    assert f"per request: {sequences:.2f}x" in vllm.server.log
    blocks = int(own["num_gpu_blocks"])
    assert vllm.value("kvscope_kv_usable_tokens") == tokens * (blocks - 1) // blocks
    fitting = vllm.value("kvscope_kv_full_length_sequences")
    assert fitting == pytest.approx(sequences * (blocks - 1) / blocks)


def _cache_configuration(page: str) -> dict[str, str]:
    (labels,) = (
        sample.labels
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "vllm:cache_config_info"
    )
    return dict(labels)


def _advice_declines(vllm: Observed) -> None:
    (engine,) = httpx.get(f"{vllm.url}/api/advice", timeout=30).json()["engines"]
    answer = engine["answer"]
    assert "not known for pools of several groups" in answer["unknown"]
    assert answer["proposals"] == []
    assert not any("would save" in reason for reason in answer["declined"])


def _fails(vllm: Observed) -> None:
    """An exception in the observer: every request is served, and it says that it is off."""
    (vllm.folder / "witness" / "fault").write_text(FAULT)
    for prompt in PROMPTS:
        assert len(vllm.server.complete(f"afterwards {prompt}", 60)[0]) == 60
    load(vllm.server, requests=20, seed=1)
    wait_for(lambda: vllm.replay.stopped is not None, "it says that it has stopped")
    assert "InjectedError" in str(vllm.replay.stopped)
    said = [line for line in vllm.server.log.splitlines() if "InjectedError" in line]
    assert len([line for line in said if "kvscope: off" in line]) == 1, said
    # vLLM's own page goes on, and knows active blocks; what is cached only events show.
    wait_for(lambda: vllm.value("kvscope_kv_blocks", state="cached") is None, "nothing is claimed")
    assert vllm.value("kvscope_observer_stopped", endpoint=vllm.replay.endpoint) == 1
    assert vllm.server.alive()
    wait_for(lambda: "no longer observed" in vllm.server.log, "`kvscope run` says so as well")


@pytest.mark.weekly
def test_several_api_servers_are_counted_apart_and_their_engine_once(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    """Their clients name themselves in the body."""
    options = (*SMALL, "--api-server-count", "2")
    place = {TENANT_VARIABLE: "user"}
    with observed(vllm_python, models("llama"), tmp_path, *options, program=SERVE, **place) as vllm:
        for number in range(REQUESTS):  # a connection each, which either server may accept
            vllm.server.complete(PROMPTS[number % len(PROMPTS)], 8, user=f"ann {number % 2}")
        wait_for(lambda: sum(_answered(vllm.page()).values()) == REQUESTS, "all are counted")
        answered = _answered(vllm.page())
        assert set(answered) == {"api-0", "api-1"}
        assert all(answered.values()), "the system has given some to each"
        assert vllm.assert_equal() > REQUESTS
        assert vllm.value("kvscope_kv_ledger_imbalance_blocks") == 0
        assert total(vllm.page(), "vllm:request_success_total") == REQUESTS
        assert vllm.page().count("\nkvscope_engine_ready{") == 1
        assert_tenants(vllm, {"ann 0": REQUESTS // 2, "ann 1": REQUESTS // 2})


def _answered(page: str) -> dict[str, float]:
    """Requests that each API server has answered well."""
    return {
        sample.labels["front_end"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "kvscope_front_end_answers_total"
        and (sample.labels["route"], sample.labels["status"]) == ("generation", "2xx")
    }


@contextmanager
def two_hosts(
    python: Path, model: Path, folder: Path, *options: str, second: Sequence[str]
) -> Iterator[tuple[Observed, VllmServer]]:
    """Two processes with folders of their own, each under its `kvscope run`.

    options: of both; second: of the second one besides, which has no API server.
    """
    page_port = free_port()
    command = [
        *kvscope_command("run", "--port", str(page_port), "--no-gpu", "--"),
        *server_command(python, model, free_port(), *SMALL, *options, program=SERVE),
        *("--headless", *second),
    ]
    with tempfile.TemporaryDirectory(prefix="kvscope-") as run:
        variables = server_environment(KVSCOPE_RUN_DIR=run)
        with (
            started(command, variables, page_port, folder, "second") as other,
            observed(
                *(python, model, folder, *SMALL, *options),
                program=SERVE,
                start_seconds=2 * START_SECONDS,
            ) as vllm,
        ):
            yield vllm, other
            assert "kvscope: off" not in vllm.server.log + other.log


@pytest.mark.weekly
def test_an_engine_over_two_hosts_has_a_page_on_each_and_counts_once(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    """Tensor parallelism: with pipelines 0.32 for CPU starts, and fails in its first step."""
    parallel = (
        "--tensor-parallel-size",
        "2",
        "--distributed-executor-backend",
        "mp",
        "--nnodes",
        "2",
    )
    meet = ("--master-addr", "127.0.0.1", "--master-port", str(free_port()))
    rank = ("--node-rank", "1")
    with two_hosts(vllm_python, models("llama"), tmp_path, *parallel, *meet, second=rank) as (
        vllm,
        workers,
    ):
        load(vllm.server, requests=20)
        assert vllm.assert_equal() > 100
        assert vllm.value("kvscope_kv_ledger_imbalance_blocks") == 0
        assert sample(workers.page(), "kvscope_server_state", state="ready") == 1
        pages = vllm.page(), workers.page()
        for family in ("kvscope_engine_ready", "kvscope_kv_usable_blocks"):
            assert [engines_with(family, page) for page in pages] == [["0"], []]
        for number, page in enumerate(pages):
            name = "kvscope_start_phase_seconds"
            assert sample(page, name, phase="weights", worker=str(number), engine="0") is not None
            assert (sample(page, "kvscope_host_memory_resident_bytes") or 0) > 0
        assert set(re.findall(r'kvscope_source_up{.*source="(\w+)"', pages[1])) == {"remote"}


@pytest.mark.weekly
def test_data_parallel_engines_of_two_hosts_are_each_on_one_page(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    parallel = ("--data-parallel-size", "2", "--data-parallel-size-local", "1")
    meet = ("--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(free_port()))
    rank = ("--data-parallel-start-rank", "1")
    with two_hosts(vllm_python, models("llama"), tmp_path, *parallel, *meet, second=rank) as (
        vllm,
        other,
    ):
        for number in range(REQUESTS):
            vllm.server.complete(PROMPTS[number % len(PROMPTS)], 8)
        ended = "kvscope_requests_finished_total"
        wait_for(
            lambda: (
                sum(
                    sample(page, ended, reason="length") or 0
                    for page in (vllm.page(), other.page())
                )
                == REQUESTS
            ),
            "each request has ended once",
        )
        pages = vllm.page(), other.page()
        for family in (ended, "kvscope_engine_ready", "kvscope_kv_active_ratio"):
            assert [engines_with(family, page) for page in pages] == [["0"], ["1"]]
        for page in pages:
            assert sample(page, "kvscope_kv_ledger_imbalance_blocks") == 0
            assert sample(page, "kvscope_server_state", state="ready") == 1


def engines_with(family: str, page: str) -> list[str]:
    return sorted(set(re.findall(rf'(?m)^{family}{{.*engine="(\w+)"', page)))
