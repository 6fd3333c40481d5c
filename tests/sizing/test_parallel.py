"""Models divided among GPUs: what each one holds, and how many it takes."""

import pytest

from kvscope.plan.gpus import GPUS, find_gpu
from kvscope.plan.parallel import Parallelism
from kvscope.plan.plan import Plan, PoolMemory
from kvscope.plan.verdict import smallest
from kvscope_engine.sizing import ConfigError
from tests.sizing.configs import (
    CODESTRAL_MAMBA_7B,
    DEEPSEEK_V2_LITE,
    GEMMA_3_27B,
    LLAMA_3_8B,
    LLAMA_70B,
    QWEN3_30B_A3B,
    QWEN3_NEXT_80B,
)
from tests.sizing.test_plan import make_plan

EXPERTS = 48 * 128 * 3 * 768 * 2048
"""Weights of Qwen3-30B-A3B's experts."""


def divided(config: dict[str, object], **sizes: int) -> Plan:
    return make_plan(config, parallel=Parallelism(**sizes))


def weights(plan: Plan) -> list[int]:
    """Weights of one GPU of each stage, bf16."""
    assert plan.stage_weights is not None
    return [nbytes // 2 for nbytes in plan.stage_weights]


def test_tensor_parallelism_divides_matrices_and_repeats_norms() -> None:
    norms = 65 * 4096
    assert weights(divided(LLAMA_3_8B, tensor=4)) == [(8_030_261_248 - norms) // 4 + norms]


@pytest.mark.parametrize(("tensor", "heads"), [(1, 4), (2, 2), (4, 1), (8, 1)])
def test_a_kv_head_is_repeated_where_gpus_are_more(tensor: int, heads: int) -> None:
    plan = divided(QWEN3_30B_A3B, tensor=tensor)
    assert plan.bytes_per_token == 48 * 2 * heads * 128 * 2


def test_a_latent_vector_is_whole_on_every_gpu() -> None:
    assert divided(DEEPSEEK_V2_LITE, tensor=8).bytes_per_token == 27 * 576 * 2


def test_states_are_divided_and_their_groups_repeated() -> None:
    assert divided(QWEN3_NEXT_80B, tensor=4).state_bytes * 4 == pytest.approx(
        make_plan(QWEN3_NEXT_80B).state_bytes
    )
    one, sixteen = make_plan(CODESTRAL_MAMBA_7B), divided(CODESTRAL_MAMBA_7B, tensor=16)
    repeated = 64 * 3 * 8 * 2 * 128 * 2  # 8 groups for 16 GPUs
    assert sixteen.state_bytes * 16 == one.state_bytes + repeated


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [(32, 4, [8, 8, 8, 8]), (61, 4, [15, 15, 16, 15]), (30, 4, [7, 8, 8, 7]), (5, 1, [5])],
)
def test_stages_have_the_layers_that_vllm_gives_them(
    layers: int, stages: int, sizes: list[int]
) -> None:
    made = Parallelism(pipeline=stages).stages(layers)
    assert [len(stage) for stage in made] == sizes
    assert [layer for stage in made for layer in stage] == list(range(layers))


def test_a_stage_holds_its_layers_and_the_ends_their_tables() -> None:
    first, second = weights(divided(LLAMA_3_8B, pipeline=2))
    assert first + second == 8_030_261_248
    assert second - first == 4096  # the last norm


def test_a_tied_embedding_is_on_both_ends() -> None:
    tied = {**LLAMA_3_8B, "tie_word_embeddings": True}
    whole, both = weights(make_plan(tied))[0], weights(divided(tied, pipeline=2))
    assert sum(both) - whole == 128_256 * 4096


def test_blocks_of_a_stage_hold_its_layers_alone() -> None:
    """Ten full and 52 sliding layers in groups of up to ten, of which each stage has half."""
    plan = divided(GEMMA_3_27B, pipeline=2)
    assert plan.bytes_per_block == make_plan(GEMMA_3_27B).bytes_per_block // 2


def test_the_stage_with_the_least_room_decides() -> None:
    memory = PoolMemory(total=find_gpu("L4").total_bytes)
    plan = make_plan(LLAMA_3_8B, memory=memory, parallel=Parallelism(pipeline=3))
    budget = plan.budget("chunked")
    assert budget is not None
    assert [len(stage) for stage in plan.stages] == [11, 11, 10]
    assert plan.num_blocks() == budget.kv_pool // plan.bytes_per_block


@pytest.mark.parametrize("experts", [False, True])
def test_replicas_share_the_experts(experts: bool) -> None:
    plan = make_plan(QWEN3_30B_A3B, parallel=Parallelism(tensor=2, data=4, experts=experts))
    others = weights(divided(QWEN3_30B_A3B, tensor=2))[0] - EXPERTS // 2
    assert weights(plan) == [others + EXPERTS // 8]


def test_replicas_of_a_dense_model_are_whole_and_add_up() -> None:
    memory = PoolMemory(pool=8 * 2**30)
    one = make_plan(LLAMA_3_8B, memory=memory)
    four = make_plan(LLAMA_3_8B, memory=memory, parallel=Parallelism(data=4))
    assert weights(four) == weights(one)
    assert four.sequences(8192) == 4 * (one.sequences(8192) or 0) == 32


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"tensor": 3}, "32 attention heads cannot be divided among 3 GPUs"),
        ({"pipeline": 64}, "32 layers cannot be divided into 64 stages"),
    ],
)
def test_what_cannot_be_divided_is_refused(sizes: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        divided(LLAMA_3_8B, **sizes).stage_blocks  # noqa: B018


@pytest.mark.parametrize(("sequences", "gpus"), [(1, 2), (8, 4), (64, 8), (10**6, None)])
def test_the_fewest_gpus_that_hold_so_many(sequences: int, gpus: int | None) -> None:
    memory = PoolMemory(total=find_gpu("H100").total_bytes, other=2**29)
    plan = make_plan(LLAMA_70B, memory=memory, max_model_len=8192)
    found = smallest(plan, sequences)
    assert (found.settings.parallel.gpus if found else None) == gpus


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_a_gpu_is_found_by_all_of_its_names(gpu: object) -> None:
    for known in GPUS:
        if known is gpu:
            for name in (known.name, *known.also):
                assert find_gpu(name) is known
                assert find_gpu(f"NVIDIA {name}") is known
                assert find_gpu(name.lower()) is known
            # CUDA sees somewhat less than the datasheet's decimal figure, if that is decimal.
            assert 0.9 < known.total_bytes / (known.datasheet_gb * 1e9) < 1.08
