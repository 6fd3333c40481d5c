"""vLLM's own offloading to host memory: what is found there, copied, and predicted of other sizes.

The same requests, one after another, with a tier of S blocks and one of 2S.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.pages import sample
from tests.support.prefix_trees import Load, drive
from tests.vllm.counters import total
from tests.vllm.observed import SMALL, Observed, observed

pytestmark = [pytest.mark.vllm, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(900)]

SPECIFICATION = Path(__file__).with_name("host_copies.py")
POOL = (*SMALL, "--num-gpu-blocks-override", "61")
USABLE = 60
TIER = 2 * USABLE
BLOCK_TOKENS = 32
LOAD = Load(requests=150, clients=1, conversations=24, user_tokens=128, output_tokens=8, seed=5)
LIMIT = 0.01
"""Largest error of a predicted share of the blocks looked up."""


class OneByOne:
    """A `Server` of tests.support.prefix_trees that serves a request before the next."""

    def __init__(self, vllm: Observed) -> None:
        self._vllm = vllm
        self._asked: list[tuple[int, list[int], int]] = []

    def submit(self, request: int, prompt: Sequence[int], output_tokens: int) -> None:
        self._asked.append((request, list(prompt), output_tokens))

    def step(self) -> Iterable[tuple[int, Sequence[int]]]:
        request, prompt, output_tokens = self._asked.pop(0)
        yield request, _complete(self._vllm, prompt, output_tokens)


@pytest.mark.weekly
def test_a_host_tier_and_one_of_twice_its_size(
    vllm_python: Path, models: Callable[[str], Path], tmp_path: Path
) -> None:
    model = models("llama")
    predicted: dict[int, float] = {}
    real: dict[int, float] = {}
    for size in (TIER, 2 * TIER):
        folder = tmp_path / str(size)
        folder.mkdir()
        options = (*POOL, "--kv-transfer-config", json.dumps(_transfer(model, size)))
        with observed(vllm_python, model, folder, *options, modules=(SPECIFICATION,)) as vllm:
            _nothing_is_computed_again(vllm)
            drive(OneByOne(vllm), LOAD)
            vllm.assert_equal()
            real[size] = _found(vllm)
            predicted = predicted or _predicted(vllm)
            _counts_are_vllms_own(vllm, size)
            if size == TIER:
                _preempted_ones_find_theirs(vllm)
    assert predicted[TIER] == pytest.approx(real[TIER], abs=LIMIT)
    assert predicted[2 * TIER] == pytest.approx(real[2 * TIER], abs=LIMIT)
    assert real[2 * TIER] > real[TIER] + 5 * LIMIT, "the sizes make no difference"


def _transfer(model: Path, blocks: int) -> dict[str, Any]:
    shape = json.loads((model / "config.json").read_text())
    of_token = 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * shape["head_dim"] * 4
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "HostCopies",
            "spec_module_path": SPECIFICATION.stem,
            "cpu_bytes_to_use": blocks * BLOCK_TOKENS * of_token,
        },
    }


def _complete(vllm: Observed, prompt: list[int], output_tokens: int) -> list[int]:
    answer = vllm.server.post(
        "/v1/completions",
        model="tiny",
        prompt=prompt,
        max_tokens=output_tokens,
        temperature=0,
        ignore_eos=True,
        return_token_ids=True,
    )
    tokens: list[int] = answer["choices"][0]["token_ids"]
    return tokens


def _nothing_is_computed_again(vllm: Observed) -> None:
    """The tier has all that the pool evicts: no regret, and hits of the host."""
    prompts = [[number, *range(250)] for number in range(12)]  # of 8 blocks, 7 of which can be hit
    for prompt in [*prompts, *prompts]:
        _complete(vllm, prompt, 1)
    vllm.settle()
    page = vllm.page()
    evicted = sample(page, "kvscope_kv_block_evictions_total", cause="capacity")
    assert evicted is not None
    assert evicted > 20
    assert sample(page, "kvscope_prefix_cache_regret_tokens_total") == 0
    assert sample(page, "kvscope_kv_pool_shortfall_blocks") is None
    hits = {
        tier: sample(page, "kvscope_kv_tier_hit_tokens_total", tier=tier)
        for tier in ("device", "host")
    }
    assert (hits["device"] or 0) + (hits["host"] or 0) == 12 * 7 * BLOCK_TOKENS
    assert hits["host"]


def _counts_are_vllms_own(vllm: Observed, size: int) -> None:
    page, own = vllm.page(), vllm.server.page()
    assert sample(page, "kvscope_kv_tier_hit_tokens_total", tier="device") == total(
        own, "vllm:prefix_cache_hits_total"
    )
    assert sample(page, "kvscope_kv_tier_hit_tokens_total", tier="host") == total(
        own, "vllm:external_prefix_cache_hits_total"
    )
    assert sample(page, "kvscope_kv_tier_queried_tokens_total", tier="host") == total(
        own, "vllm:external_prefix_cache_queries_total"
    )
    assert sample(page, "kvscope_kv_tier_used_ratio", tier="host") == 1
    block_bytes = sample(page, "kvscope_kv_block_size_bytes")
    assert block_bytes
    names = ("stored_blocks_total", "removed_blocks_total", "blocks")
    stored, removed, here = (sample(page, f"kvscope_kv_tier_{name}", tier="host") for name in names)
    assert stored is not None
    assert removed is not None
    assert stored * block_bytes == total(own, "vllm:kv_offload_store_bytes_total")
    assert here == stored - removed == size, "it is full"


def _found(vllm: Observed) -> float:
    """Share of the blocks looked up that were found, in the pool or below."""
    page = vllm.page()
    hits = [
        sample(page, "kvscope_kv_tier_hit_tokens_total", tier=tier) for tier in ("device", "host")
    ]
    answer = _whatif(vllm)
    queried = answer["curves"][-1]["points"][0]["queried_blocks"]
    return sum(tokens or 0 for tokens in hits) / BLOCK_TOKENS / queried


def _predicted(vllm: Observed) -> dict[int, float]:
    answer = _whatif(vllm)
    assert answer["offloading"]["tier_blocks"] == TIER
    assert answer["offloading"]["measured_load_bytes_per_second"] > 0
    (since_start,) = (one for one in answer["curves"] if one["window"] == "start")
    tiers = since_start["host_tiers"]
    assert [tier["is_lower_bound"] for tier in tiers] == [False] * len(tiers)
    return {tier["size_blocks"]: tier["hit_ratio"] for tier in tiers}


def _whatif(vllm: Observed) -> Any:
    (engine,) = httpx.get(f"{vllm.url}/api/whatif", timeout=30).json()["engines"]
    return engine["answer"]


def _preempted_ones_find_theirs(vllm: Observed) -> None:
    """The bill separates losses that the pool still had from those that the tier had."""
    prompts = [f"{number} {'more and more ' * 8}" for number in range(6)]
    assert [len(tokens) for tokens in vllm.server.complete(prompts, 300)] == [300] * len(prompts)
    vllm.assert_equal()
    (engine,) = httpx.get(f"{vllm.url}/api/preemptions", timeout=30).json()["engines"]
    bill = {line["cause"]: line for line in engine["answer"]["bill"]}["out_of_blocks"]
    by_tier = bill["found_by_tier"]
    assert by_tier["host"] > 0
    assert sum(by_tier.values()) == bill["found_tokens"]
    resumed = vllm.value("kvscope_prefix_cache_hit_tokens_total", phase="resumed")
    assert by_tier["device"] <= (resumed or 0)
