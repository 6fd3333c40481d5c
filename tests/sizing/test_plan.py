"""The arithmetic against the worked numbers of the field, and against itself."""

import pytest

from kvscope.plan.gpus import find_gpu
from kvscope.plan.parallel import Parallelism
from kvscope.plan.plan import Plan, PoolMemory, Settings
from kvscope.plan.report import grid, reservations
from kvscope.plan.shape import shape_from_config, shape_from_numbers
from kvscope.plan.storage import plain_storage
from kvscope_engine.sizing import ConfigError, Dtype
from kvscope_engine.sizing.config_json import Config
from tests.sizing.configs import (
    DEEPSEEK_V2_LITE,
    GEMMA_3_4B,
    GEMMA_4_31B,
    GEMMA_4_E2B,
    GPT_OSS_20B,
    LLAMA_2_7B,
    LLAMA_3_8B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    QWEN3_NEXT_80B,
)
from tests.sizing.published import PUBLISHED

KIB, MIB, GIB = 2**10, 2**20, 2**30


def make_plan(
    config: Config,
    *,
    kv_dtype: Dtype = Dtype.BF16,
    weight_dtype: Dtype = Dtype.BF16,
    memory: PoolMemory | None = None,
    changes: dict[str, int] | None = None,
    max_model_len: int = 8192,
    concurrency: int = 32,
    windows: bool = True,
    activations: int | None = None,
    parallel: Parallelism | None = None,
) -> Plan:
    shape = shape_from_config(config, "test", changes)
    settings = Settings(
        storage=plain_storage(weight_dtype),
        kv_dtype=kv_dtype,
        block_size=16,
        max_model_len=max_model_len,
        concurrency=concurrency,
        max_num_batched_tokens=2048,
        windows=windows,
        state_dtype=shape.state_dtype,
        parallel=parallel or Parallelism(),
        activations=activations,
    )
    return Plan(shape=shape, settings=settings, memory=memory or PoolMemory())


@pytest.mark.parametrize("name", PUBLISHED)
def test_one_more_token_of_a_published_checkpoint_takes_its_bytes(name: str) -> None:
    plan = make_plan(PUBLISHED[name].config, max_model_len=131_072)
    assert plan.bytes_per_token == PUBLISHED[name].token


def test_qwen3_30b_a3b() -> None:
    plan = make_plan(QWEN3_30B_A3B)
    assert plan.bytes_per_token == 96 * KIB
    assert plan.sequence_bytes(16_384) == 1.5 * GIB
    assert 32 * plan.sequence_bytes(16_384) == 48 * GIB


def test_layers_of_full_attention_with_heads_of_their_own() -> None:
    plan = make_plan(GEMMA_4_31B)
    assert "16 KV heads of 256 and 4 KV heads of 512" in plan.shape.attention
    assert plan.bytes_per_block == 2_621_440
    windows = 5 * (-(-(1023 + 2 * 2048) // 16) + 1)
    assert plan.blocks(262_144) == 262_144 // 32 + windows == 9_797


def test_layers_that_attend_to_the_kv_of_earlier_ones_keep_none() -> None:
    plan = make_plan(GEMMA_4_E2B)
    assert (plan.shape.num_layers, len(plan.shape.layers)) == (35, 15)
    assert any(note.startswith("20 layers") for note in plan.shape.notes)


def test_given_heads_are_those_of_every_layer() -> None:
    plan = make_plan(GEMMA_4_31B, changes={"kv_heads": 2, "head_dim": 64})
    assert {layer.elements() for layer in plan.shape.layers} == {2 * 2 * 64}


def test_llama_3_8b() -> None:
    plan = make_plan(LLAMA_3_8B)
    assert plan.bytes_per_block == 2 * MIB
    assert plan.sequence_bytes(2_048) == 256 * MIB


def test_llama_2_7b() -> None:
    assert make_plan(LLAMA_2_7B).sequence_bytes(2_048) == GIB


def test_qwen3_8b_without_grouped_heads_is_45_gib_and_not_46_08_gb() -> None:
    plan = make_plan(QWEN3_8B, kv_dtype=Dtype.FP32, changes={"kv_heads": 32})
    nbytes = plan.sequence_bytes(40_960)
    assert nbytes == 45 * GIB
    assert nbytes / 1e9 == pytest.approx(48.32, abs=0.01)  # what it is in GB
    assert nbytes / MIB / 1000 == 46.08  # what is printed: MiB over a thousand
    assert any("kv_heads" in note for note in plan.shape.notes)


def test_numbers_alone_are_enough_for_the_cache() -> None:
    shape = shape_from_numbers(layers=48, kv_heads=4, head_dim=128)
    plan = Plan(shape=shape, settings=make_plan(LLAMA_3_8B).settings, memory=PoolMemory())
    assert plan.bytes_per_token == make_plan(QWEN3_30B_A3B).bytes_per_token
    assert plan.weight_bytes is None
    assert plan.activation_bytes("whole") is None


@pytest.mark.parametrize(
    ("dtype", "share"),
    [(Dtype.FP32, 2), (Dtype.FP16, 1), (Dtype.FP8, 0.5), (Dtype.INT8, 0.5), (Dtype.INT4, 0.25)],
)
def test_kv_dtypes(dtype: Dtype, share: float) -> None:
    bf16 = make_plan(LLAMA_3_8B).bytes_per_token
    assert make_plan(LLAMA_3_8B, kv_dtype=dtype).bytes_per_token == share * bf16


@pytest.mark.parametrize(
    ("changes", "heads"),
    [
        ({"num_key_value_heads": 1}, "multi-query"),
        ({"num_key_value_heads": 8}, "grouped-query"),
        ({"num_key_value_heads": 32}, "full heads"),
        ({"num_key_value_heads": None}, "full heads"),
        ({"num_key_value_heads": None, "multi_query": True}, "multi-query"),
    ],
)
def test_kinds_of_heads(changes: dict[str, object], heads: str) -> None:
    plan = make_plan({**LLAMA_3_8B, **changes})
    kv_heads = {"multi-query": 1, "grouped-query": 8, "full heads": 32}[heads]
    assert plan.bytes_per_token == 2 * 2 * 32 * kv_heads * 128
    assert heads in plan.shape.attention


def test_latent_attention_caches_one_vector_for_each_layer() -> None:
    assert make_plan(DEEPSEEK_V2_LITE).bytes_per_token == 2 * 27 * (512 + 64)


def test_sliding_layers_keep_their_window_as_vllm_does() -> None:
    """29 sliding and 5 full layers: blocks of 5 layers, one group of full ones and six others."""
    plan = make_plan(GEMMA_3_4B)
    windows = [layer.window for layer in plan.shape.layers]
    assert windows.count(1024) == 29
    assert windows.count(None) == 5  # every sixth of 34 layers
    assert [len(group.pages) for group in plan.groups] == [5, 5, 5, 5, 5, 4, 5]
    assert plan.bytes_per_block == 5 * 16 * 2 * 2 * 4 * 256
    kept = -(-(1024 - 1 + 2 * 2048) // 16) + 1  # the window, two batches under way, one to align
    assert plan.blocks(131_072) == 131_072 // 16 + 6 * kept
    assert plan.bytes_per_token == 5 * 2 * 2 * 4 * 256


def test_without_the_hybrid_manager_sliding_layers_keep_all_tokens() -> None:
    plan = make_plan(GEMMA_3_4B, windows=False)
    assert plan.sequence_bytes(131_072) == 131_072 * 34 * 2 * 2 * 4 * 256


@pytest.mark.parametrize("given", [True, False])
def test_alternating_layers_with_and_without_layer_types(given: bool) -> None:
    config = dict(GPT_OSS_20B)
    if not given:
        del config["layer_types"]
    kinds = [layer.kind for layer in make_plan(config).shape.layers]
    assert kinds == ["sliding", "full"] * 12


def test_linear_layers_hold_a_state_of_constant_size() -> None:
    plan = make_plan(QWEN3_NEXT_80B)
    assert plan.bytes_per_token == 2 * 2 * 12 * 2 * 256
    convolution = (2 * 16 * 128 + 32 * 128) * 3 * 2
    recurrence = 32 * 128 * 128 * 2  # in the model's type: config.json names no other
    assert plan.state_bytes == 36 * (convolution + recurrence)
    assert any("constant state" in note for note in plan.shape.notes)


def test_a_block_of_a_hybrid_is_as_large_as_a_state() -> None:
    """Twelve layers a group: one of attention, three of states, and two blocks of each."""
    plan = make_plan(QWEN3_NEXT_80B)
    state = (2 * 16 * 128 + 32 * 128) * 3 * 2 + 32 * 128 * 128 * 2
    token = 2 * 2 * 2 * 256
    tokens = -(-state // (16 * token)) * 16
    assert plan.bytes_per_block == 12 * tokens * token
    assert plan.blocks(8192) == -(-8192 // tokens) + 3 * 2


def test_mamba_layers_hold_a_state_too() -> None:
    jamba = {
        **LLAMA_3_8B,
        "model_type": "jamba",
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "num_experts": 16,
        "num_experts_per_tok": 2,
    }
    plan = make_plan(jamba)
    assert plan.bytes_per_token == 4 * 2 * 2 * 8 * 128
    assert plan.state_bytes == 28 * (8192 * 3 * 2 + 8192 * 16 * 2)


def test_a_model_without_attention_takes_the_same_at_any_length() -> None:
    mamba = {
        "model_type": "mamba",
        "num_hidden_layers": 48,
        "hidden_size": 2048,
        "intermediate_size": 4096,
        "state_size": 16,
        "conv_kernel": 4,
        "vocab_size": 50280,
    }
    plan = make_plan(mamba)
    state = 4096 * 3 * 2 + 4096 * 16 * 2
    assert plan.bytes_per_token == 0
    assert plan.sequence_bytes(16) == plan.sequence_bytes(8192) == plan.state_bytes == 48 * state
    assert any("no layer keeps K and V" in note for note in plan.shape.notes)


@pytest.mark.parametrize("model_type", ["future", "", None, 5])
def test_a_type_whose_layers_are_not_known_is_refused(model_type: object) -> None:
    with pytest.raises(ConfigError, match=r"not known here.*--layers, --kv-heads and --head-dim"):
        make_plan({**LLAMA_3_8B, "model_type": model_type})


def test_an_unknown_type_can_be_planned_by_numbers() -> None:
    numbers = {"layers": 32, "kv_heads": 8, "head_dim": 128}
    plan = make_plan({**LLAMA_3_8B, "model_type": "future"}, changes=numbers)
    assert plan.bytes_per_token == make_plan(LLAMA_3_8B).bytes_per_token


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": None}, "no positive num_hidden_layers"),
        ({"num_hidden_layers": "32"}, "must be an integer"),
        ({"layer_types": ["full_attention"]}, "1 layer_types for 32 layers"),
        ({"layer_types": ["dreaming"] * 32}, "unknown type: dreaming"),
        ({"layer_types": ["mamba"] * 32}, "which its model type does not have"),
        ({"torch_dtype": "float7"}, "unknown dtype 'float7'"),
    ],
)
def test_a_configuration_that_does_not_say_enough(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_plan({**LLAMA_3_8B, **changes})


def test_the_rule_is_a_share_of_all_memory() -> None:
    """Not of what the weights leave: 141 GiB, 60 GiB of weights, 10 GiB of activations, 0.9."""
    shape = make_plan(LLAMA_3_8B)
    plan = Plan(
        shape=shape.shape,
        settings=make_plan(LLAMA_3_8B, activations=10 * GIB).settings,
        memory=PoolMemory(total=141 * GIB),
    )
    budget = plan.budget("chunked")
    assert budget is not None
    assert plan.weight_bytes is not None
    expected = 141 * GIB * 0.9 - plan.weight_bytes - 10 * GIB
    assert 0 <= expected - budget.kv_pool < plan.bytes_per_block
    whole = budget.weights + budget.activations + budget.other + budget.kv_pool + budget.outside
    assert whole == budget.total == 141 * GIB
    assert budget.outside >= 14.1 * GIB


def test_a_gpu_that_is_too_small_says_by_how_much() -> None:
    plan = make_plan(LLAMA_3_8B, memory=PoolMemory(total=find_gpu("T4").total_bytes))
    budget = plan.budget("chunked")
    assert budget is not None
    assert budget.kv_pool == 0
    assert budget.missing == budget.weights + budget.activations - budget.requested
    assert plan.sequences(16) == 0


def test_whole_prompts_take_more_activations_and_leave_less_pool() -> None:
    plan = make_plan(LLAMA_3_8B, memory=PoolMemory(total=find_gpu("L4").total_bytes))
    chunked, whole = plan.activation_bytes("chunked"), plan.activation_bytes("whole")
    assert chunked == 2048 * (2 * 4096 + 3 * 14336) * 2
    assert whole == 8192 * (2 * 4096 + 3 * 14336) * 2
    assert (plan.pool_bytes("chunked") or 0) > (plan.pool_bytes("whole") or 0)


def test_many_rows_of_logits_can_be_the_peak() -> None:
    plan = make_plan(LLAMA_3_8B, concurrency=2048)
    assert plan.activation_bytes("chunked") == 2048 * 4096 * 2 + 2048 * 128_256 * (2 + 4)


def test_the_grid_says_what_fits() -> None:
    plan = make_plan(QWEN3_30B_A3B, memory=PoolMemory(pool=40 * GIB), max_model_len=16_384)
    cells = {(cell.context, cell.batch): cell for cell in grid(plan)}
    assert cells[16_384, 32].nbytes == 48 * GIB
    assert cells[16_384, 32].fits is False
    assert cells[16_384, 16].fits is True
    assert all(cell.fits is None for cell in grid(make_plan(QWEN3_30B_A3B)))


def test_paging_beats_reservation_by_what_sequences_do_not_use() -> None:
    plan = make_plan(LLAMA_3_8B, memory=PoolMemory(pool=64 * GIB), max_model_len=8192)
    assert [row.naive for row in reservations(plan)] == [64] * 4
    assert [row.paged for row in reservations(plan)] == [512, 256, 128, 64]
    assert reservations(make_plan(LLAMA_3_8B)) == []
