"""Counters under vLLM's names on both pages, at rest, in the configurations that count otherwise.

One load for all: samples, salts, preempted sequences; then a reset while it runs; then clients
that leave. What may differ is listed in `counted_otherwise`, with vLLM's reason.
"""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.environments import Reason
from tests.support.pages import sample
from tests.vllm.adapters import lora_adapter
from tests.vllm.counted_otherwise import REASONS, WHEN_CLIENTS_LEAVE
from tests.vllm.counters import disagreements, total
from tests.vllm.mixed_load import mixed_load
from tests.vllm.observed import SMALL, Observed, ended, observed, outgrow, reset_while_it_runs

pytestmark = [pytest.mark.vllm, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(900)]

NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
}
LENDING = Path(__file__).with_name("lending.py")
LENT = {
    "kv_connector": "LendingConnector",
    "kv_connector_module_path": LENDING.stem,
    "kv_role": "kv_both",
}
LEAVING = 16


@pytest.mark.weekly
def test_ngram_speculation(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    options = (*SMALL, "--speculative-config", json.dumps(NGRAM))
    with observed(vllm_python, models("llama"), tmp_path, *options) as vllm:
        _counters_are_equal(vllm, _gaps_are_those_of_tokens)


@pytest.mark.weekly
def test_a_connector_that_loads(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    options = (*SMALL, "--kv-transfer-config", json.dumps(LENT))
    with observed(vllm_python, models("llama"), tmp_path, *options, modules=(LENDING,)) as vllm:
        _counters_are_equal(vllm)
        assert total(vllm.server.page(), "vllm:external_prefix_cache_hits_total") > 0


@pytest.mark.weekly
def test_lora_adapters(vllm_python: Path, models: Callable[[str], Path], tmp_path: Path) -> None:
    """Few tokens: with adapters a step takes a CPU a third of a second."""
    model = models("llama")
    adapters = [lora_adapter(tmp_path / name, model, seed) for seed, name in enumerate("ab")]
    modules = [f"{adapter.name}={adapter}" for adapter in adapters]
    options = (*SMALL, "--enable-lora", "--max-loras", "2", "--lora-modules", *modules)
    with observed(vllm_python, model, tmp_path, *options) as vllm:
        mixed_load(vllm, models=("tiny", "a", "b"), requests=9, longest=12)
        vllm.assert_equal()
        assert disagreements(vllm.page(), vllm.server.page()) == []
        for adapter in ("a", "b"):
            assert f'"{adapter}"' in httpx.get(f"{vllm.url}/api/tenants", timeout=30).text
        mixed_load(vllm, models=("tiny", "a", "b"), requests=0, leaving=3)
        _only_what_was_dropped_differs(vllm, leaving=3)


@pytest.mark.weekly
def test_two_data_parallel_ranks(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    """Each has a pool of its own, so it takes twice the sequences to outgrow both."""
    options = (*SMALL, "--data-parallel-size", "2")
    with observed(vllm_python, models("llama"), tmp_path, *options, ranks=2) as vllm:
        _counters_are_equal(vllm, sequences=20)
        for rank, replay in vllm.replays.items():
            assert replay.steps > 50, f"rank {rank} had nothing to do"
            assert replay.kinds["RequestPreempted"] > 0, f"none on rank {rank}"
            assert vllm.value("kvscope_kv_blocks", state="active", engine=str(rank)) == 0
        assert ended(vllm.server, vllm.server.process.terminate) == 0


@pytest.mark.parametrize("reason", sorted(REASONS, key=lambda reason: reason.statements))
def test_the_reason_is_in_vllms_source(vllm_python: Path, reason: Reason) -> None:
    reason.find(vllm_python, "vllm")


def _counters_are_equal(
    vllm: Observed, *further: Callable[[Observed], None], sequences: int = 10
) -> None:
    """further: what has to hold besides, until clients leave."""
    mixed_load(vllm)
    outgrow(vllm.server, sequences=sequences)
    vllm.assert_equal()
    assert total(vllm.server.page(), "vllm:prefix_cache_hits_total") > 0
    assert total(vllm.server.page(), "vllm:num_preemptions_total") > 0
    assert disagreements(vllm.page(), vllm.server.page()) == []
    reset_while_it_runs(vllm)
    vllm.assert_equal()
    assert disagreements(vllm.page(), vllm.server.page()) == []
    for check in further:
        check(vllm)
    mixed_load(vllm, leaving=LEAVING)
    _only_what_was_dropped_differs(vllm, leaving=LEAVING)


def _only_what_was_dropped_differs(vllm: Observed, *, leaving: int) -> None:
    vllm.settle()
    ours, theirs = vllm.page(), vllm.server.page()
    assert disagreements(ours, theirs, without=frozenset(WHEN_CLIENTS_LEAVE)) == []
    labels = [{"reason": "abort", "engine": str(rank)} for rank in vllm.replays]
    assert any(sample(ours, "kvscope_requests_finished_total", **one) for one in labels)
    for family in ("vllm:generation_tokens_total", "vllm:num_preemptions_total"):
        surplus = total(ours, family) - total(theirs, family)
        assert 0 <= surplus <= 8 * leaving, f"{family}: {surplus} more than in vLLM"


def _gaps_are_those_of_tokens(vllm: Observed) -> None:
    """Each token but the first of its sequence; vLLM's are those of outputs, of several each."""
    page = vllm.page()
    tokens, sequences = (
        total(page, name)
        for name in ("vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count")
    )
    assert sample(page, "kvscope_inter_token_latency_seconds_count") == tokens - sequences
    assert total(page, "vllm:inter_token_latency_seconds_count") < tokens - sequences
