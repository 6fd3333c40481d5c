"""`kvscope plan` calculates the pools that a real vLLM builds from the same config.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvscope.plan.parallel import Parallelism
from kvscope.plan.plan import Plan, PoolMemory, Settings
from kvscope.plan.shape import shape_from_config
from kvscope.plan.storage import plain_storage
from kvscope_engine.sizing import Dtype
from tests.sizing.configs import DEEPSEEK_V2_LITE, GEMMA_3_27B, GPT_OSS_120B
from tests.sizing.published import PUBLISHED
from tests.vllm.driven import run_in_vllm
from tests.vllm.planned_models import PAGE, page

pytestmark = [
    *(pytest.mark.vllm, pytest.mark.nightly, pytest.mark.weekly, pytest.mark.slow),
    pytest.mark.timeout(900),
]

GIB = 2**30
BLOCK_SIZE = {"latent": 16}
"""The only size of vLLM's CPU kernels for such layers; 32, their smallest, for all others."""
MAX_MODEL_LEN = 8192
MAX_NUM_BATCHED_TOKENS = 2048
POOL = 24 * GIB

LAYOUTS: dict[str, tuple[dict[str, Any], str]] = {
    "full": (PUBLISHED["Llama-3.1-8B"].config, "LlamaForCausalLM"),
    "experts": (PUBLISHED["Qwen3-30B-A3B"].config, "Qwen3MoeForCausalLM"),
    "latent": (DEEPSEEK_V2_LITE, "DeepseekV2ForCausalLM"),
    "pattern": (GEMMA_3_27B, "Gemma3ForCausalLM"),
    "alternate": (GPT_OSS_120B, "GptOssForCausalLM"),
    "two head sizes": (PUBLISHED["gemma-4-31B"].config, "Gemma4ForCausalLM"),
    "experts beside": (PUBLISHED["gemma-4-26B-A4B"].config, "Gemma4ForCausalLM"),
    "KV of other layers": (PUBLISHED["gemma-4-E2B"].config, "Gemma4ForCausalLM"),
    "chunked": (
        {**PUBLISHED["Llama-4-Scout"].config, "attention_chunk_size": 1024},
        "Llama4ForCausalLM",
    ),
    "delta net": (PUBLISHED["Qwen3-Next-80B"].config, "Qwen3NextForCausalLM"),
    "letters": (PUBLISHED["Nemotron-H-8B"].config, "NemotronHForCausalLM"),
    "side by side": (PUBLISHED["Falcon-H1-7B"].config, "FalconH1ForCausalLM"),
    "period": (PUBLISHED["Jamba-v0.1"].config, "JambaForCausalLM"),
    "granite": (PUBLISHED["Granite-4.0-H-Small"].config, "GraniteMoeHybridForCausalLM"),
    "no attention": (PUBLISHED["Mamba-2.8B"].config, "MambaForCausalLM"),
    "no attention, groups": (PUBLISHED["Codestral-Mamba-7B"].config, "Mamba2ForCausalLM"),
}
CASES = {
    f"{name}, {tensor} GPU{'s' if tensor > 1 else ''}": (name, tensor)
    for name in LAYOUTS
    for tensor in (1, 2)
}


def planned(layout: str, tensor: int) -> Plan:
    config, _ = LAYOUTS[layout]
    shape = shape_from_config(config, "test")
    settings = Settings(
        storage=plain_storage(Dtype.BF16),
        kv_dtype=Dtype.BF16,
        state_dtype=shape.state_dtype,
        block_size=BLOCK_SIZE.get(layout, 32),
        max_model_len=MAX_MODEL_LEN,
        concurrency=16,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        parallel=Parallelism(tensor=tensor),
    )
    return Plan(shape=shape, settings=settings, memory=PoolMemory(pool=POOL))


def case(name: str) -> dict[str, Any]:
    layout, tensor = CASES[name]
    config, architecture = LAYOUTS[layout]
    state = {Dtype.FP32: "float32"}.get(shape_from_config(config, "test").state_dtype, "auto")
    return {
        "name": name,
        "config": {"torch_dtype": "bfloat16", **config, "architectures": [architecture]},
        "tensor": tensor,
        "block_size": BLOCK_SIZE.get(layout, 32),
        "max_model_len": MAX_MODEL_LEN,
        "max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS,
        "state_dtype": state,
        "memory": POOL,
    }


@pytest.fixture(scope="module")
def built(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All cases in one process: vLLM takes ten seconds to import."""
    folder = tmp_path_factory.mktemp("pools")
    file = folder / "cases.json"
    file.write_text(json.dumps([case(name) for name in CASES]))
    lines, _ = run_in_vllm(vllm_python, folder, "tests.vllm.plan_pools", str(file))
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", CASES)
def test_a_pool_is_planned_as_vllm_builds_it(built: dict[str, Any], name: str) -> None:
    layout, tensor = CASES[name]
    plan, real = planned(layout, tensor), built[name]
    assert "error" not in real, real
    assert plan.num_blocks() == real["blocks"]
    assert sorted(len(group.pages) for group in plan.groups) == real["layers"]
    assert plan.concurrent(MAX_MODEL_LEN) == pytest.approx(real["concurrency"], rel=1e-12)
    assert plan.stage_weights is not None
    assert plan.stage_weights[0] / 2 == pytest.approx(real["weights"], rel=0.01)


def test_every_architecture_that_builds_is_planned_as_its_page_says(
    vllm_python: Path, tmp_path: Path
) -> None:
    lines, _ = run_in_vllm(vllm_python, tmp_path, "tests.vllm.plan_pools", "--all")
    found = page([line for line in lines if "case" in line])
    assert "| differs" not in found
    assert found == PAGE.read_text(), "run python -m tests.vllm.planned_models"
