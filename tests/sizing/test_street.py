"""Checkpoints as people have them: what the folder says and the engine obeys, cache by cache."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvscope.plan.cache import KVLayer
from kvscope.plan.layers_file import read_layers
from kvscope.plan.parallel import Parallelism
from kvscope.plan.plan import Plan, PoolMemory, Settings
from kvscope.plan.quantization import kv_dtype_of
from kvscope.plan.shape import ModelShape, shape_from_config, shape_from_layers
from kvscope.plan.storage import plain_storage
from kvscope_engine.sizing import ConfigError, Dtype
from tests.sizing.configs import (
    DEEPSEEK_V3,
    GEMMA_4_26B_A4B,
    GEMMA_4_31B,
    KIMI_LINEAR_48B,
    LLAMA_3_8B,
    NEMOTRON_H_8B,
    QWEN3_30B_A3B,
    QWEN3_NEXT_80B,
)
from tests.sizing.test_cli import document

GIB = 2**30
Config = dict[str, Any]
FP8 = {"num_bits": 8, "type": "float", "dynamic": False}
DEEPSEEK_V3_2 = {
    **{key: value for key, value in DEEPSEEK_V3.items() if key != "quantization_config"},
    **{"model_type": "deepseek_v32", "index_head_dim": 128, "index_n_heads": 64},
    "index_topk": 2048,
}
DEEPSEEK_V4 = {
    **{"model_type": "deepseek_v4", "num_hidden_layers": 43, "hidden_size": 4096},
    **{"num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512},
    **{"qk_rope_head_dim": 64, "sliding_window": 128, "index_head_dim": 128, "index_topk": 512},
    **{"compress_ratios": [0, 0, *[4, 128] * 20, 4, 0], "vocab_size": 129_280},
}
MINIMAX_M3 = {
    **{"num_hidden_layers": 60, "hidden_size": 6144, "num_attention_heads": 64},
    **{"num_key_value_heads": 4, "head_dim": 128, "vocab_size": 200_064},
    "sparse_attention_config": {
        **{"use_sparse_attention": True, "sparse_index_dim": 128},
        "sparse_attention_freq": [0] * 3 + [1] * 57,
    },
}
MIMO_V2 = {
    **{"model_type": "mimo_v2_flash", "num_hidden_layers": 48, "num_attention_heads": 64},
    **{"num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "sliding_window": 128},
    **{"swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128},
    "hybrid_layer_pattern": [0, *[1] * 4, *[0, *[1] * 5] * 7, 0],
}


def folder(tmp_path: Path, config: Config, **others: Config) -> str:
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name, content in others.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return str(tmp_path)


def plan_of(shape: ModelShape, **changes: Any) -> Plan:
    settings: dict[str, Any] = {
        **{"storage": plain_storage(Dtype.BF16), "kv_dtype": shape.kv_dtype or Dtype.BF16},
        **{"block_size": 16, "max_model_len": 8192, "concurrency": 16},
        **{"max_num_batched_tokens": 2048, "state_dtype": shape.state_dtype, **changes},
    }
    return Plan(shape=shape, settings=Settings(**settings), memory=PoolMemory(pool=60 * GIB))


def plan(config: Config, **changes: Any) -> Plan:
    return plan_of(shape_from_config(config, "test"), **changes)


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": FP8}, Dtype.FP8),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, Dtype.FP8),
        ({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, Dtype.FP8),
        ({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}}, Dtype.NVFP4),
        ({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}, None),
        ({"quant_method": "modelopt", "kv_cache_scheme": {**FP8, "dynamic": True}}, None),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": FP8}, Dtype.FP8),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, None),
        ({"quant_method": "fp8", "kv_cache_scheme": FP8}, None),
    ],
)
def test_auto_is_the_type_that_the_checkpoint_states(config: Config, dtype: Dtype | None) -> None:
    assert kv_dtype_of(config) is dtype


def test_a_scheme_in_config_json_halves_the_cache_unless_another_type_is_asked_for(
    tmp_path: Path,
) -> None:
    method = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
    stated = {**LLAMA_3_8B, "quantization_config": {**method, "kv_cache_scheme": FP8}}
    name = folder(tmp_path, stated)
    assert document(name)["bytes"]["per_token"] == 65_536
    assert document(name, "--kv-cache-dtype", "bf16")["bytes"]["per_token"] == 131_072


def test_quantization_stated_in_a_second_file_of_the_folder(tmp_path: Path) -> None:
    algorithms = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16}
    beside = {"producer": {"name": "modelopt"}, "quantization": algorithms}
    found = document(folder(tmp_path, LLAMA_3_8B, hf_quant_config=beside))
    assert found["bytes"]["per_token"] == 65_536
    assert found["bytes"]["checkpoint"] / GIB == pytest.approx(5.6, abs=0.1)
    assert document(f"{tmp_path}/config.json")["bytes"] == found["bytes"]


def test_the_second_file_does_not_overrule_the_first(tmp_path: Path) -> None:
    own = {**LLAMA_3_8B, "quantization_config": {"quant_method": "fp8"}}
    beside = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    found = document(folder(tmp_path, own, hf_quant_config=beside))
    assert (found["settings"]["kv_dtype"], found["settings"]["weights"][:3]) == ("bf16", "fp8")


def test_each_module_of_mixed_precision_takes_its_own_format() -> None:
    layers = {
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.1.block_sparse_moe.experts.0.down_proj": {"quant_algo": "NVFP4"},
    }
    method = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    mixed = {**QWEN3_30B_A3B, "quantization_config": {**method, "quantized_layers": layers}}
    shape = shape_from_config(mixed, "test")
    assert shape.storage is not None
    assert shape.weights is not None
    saved = plain_storage(Dtype.BF16).nbytes(shape.weights) - shape.storage.nbytes(shape.weights)
    query, experts = 32 * 128 * 2048, 128 * 2048 * 768
    assert saved == query - 4 + experts * 2 - (experts // 2 + experts // 16 + 128 * 8)


def test_experts_beside_a_dense_network_are_not_among_its_modules() -> None:
    method = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    ignore = [
        f"model.language_model.layers.{n}.{part}*"
        for n in range(30)
        for part in ("mlp", "self_attn")
    ]
    config = {**GEMMA_4_26B_A4B, "quantization_config": {**method, "ignore": ignore}}
    shape = shape_from_config(config, "test")
    assert shape.storage is not None
    assert shape.weights is not None
    assert shape.storage.nbytes(shape.weights) / 1e9 == pytest.approx(17.6, abs=0.5)


@pytest.mark.parametrize(
    "keys", [["text_config"], ["thinker_config", "text_config"], ["llm_config"]]
)
def test_a_decoder_is_found_at_any_depth(keys: list[str]) -> None:
    config: Config = {**QWEN3_30B_A3B, "model_type": "qwen3_omni_moe_text"}
    for key in reversed(keys):
        config = {"model_type": "qwen3_omni_moe", key: config}
    assert plan(config).bytes_per_token == 98_304


def test_a_decoder_without_a_type_of_its_own_has_the_outer_one() -> None:
    nested = plan({"model_type": "minimax_m3_vl", "text_config": MINIMAX_M3})
    assert (
        nested.bytes_per_token == plan({**MINIMAX_M3, "model_type": "minimax_m3"}).bytes_per_token
    )


def test_a_nested_decoder_relies_on_the_defaults_of_its_type() -> None:
    nested = plan({"model_type": "llava", "text_config": {"model_type": "llama"}})
    assert nested.bytes_per_token == 32 * 2 * 4096 * 2


def test_a_checkpoint_of_32_bits_is_served_in_16(tmp_path: Path) -> None:
    found = document(folder(tmp_path, {**LLAMA_3_8B, "torch_dtype": "float32"}))
    assert found["bytes"]["per_token"] == 131_072
    assert found["bytes"]["checkpoint"] == 16_060_522_496


def test_a_window_without_a_list_of_layers_is_that_of_all_layers() -> None:
    kinds = {layer.kind for layer in plan({**LLAMA_3_8B, "sliding_window": 1024}).shape.layers}
    assert kinds == {"sliding"}


def test_an_index_stands_beside_latent_attention() -> None:
    sparse = plan(DEEPSEEK_V3_2)
    assert sparse.bytes_per_token == 61 * (1_152 + 132) == 78_324
    assert len(sparse.groups) == 1
    assert plan(DEEPSEEK_V3_2, kv_dtype=Dtype.FP8).bytes_per_token == 61 * (656 + 132)
    plain = plan(DEEPSEEK_V3_2, kv_dtype=Dtype.FP8, packed_fp8=False)
    assert plain.bytes_per_token == 61 * (576 + 132)


def test_layers_that_use_the_index_of_another_keep_none() -> None:
    shared = {**DEEPSEEK_V3_2, "index_topk_freq": 4, "index_skip_topk_offset": 3}
    kinds = [layer.kind for layer in plan(shared).shape.layers]
    assert kinds.count("indexer") == 3 + (61 - 3 - 3) // 4 + 1
    pattern = {**DEEPSEEK_V3_2, "index_topk_pattern": "FS" * 30 + "F"}
    assert [each.kind for each in plan(pattern).shape.layers].count("indexer") == 31


def test_a_key_of_each_token_stands_beside_grouped_heads() -> None:
    found = plan({**MINIMAX_M3, "model_type": "minimax_m3"}, block_size=128)
    assert found.bytes_per_token == 60 * 4 * 2 * 128 * 2 + 57 * 256


def test_caches_that_compress_are_packed_as_vllm_packs_them() -> None:
    """Blocks, concurrency and groups of vLLM 0.32 for its specifications of DeepSeek-V4-Flash."""
    for length, concurrency in ((8192, 37.32868757), (131_072, 29.19164396), (2**20, 11.10957484)):
        found = plan(DEEPSEEK_V4, max_model_len=length)
        assert found.num_blocks() == 64_280
        assert found.concurrent(length) == pytest.approx(concurrency, rel=1e-9)
        assert sorted(len(group.pages) for group in found.groups) == [20, 21, 22, 42, 62]
    assert any("compare sequences, not tokens" in note for note in found.shape.notes)


def test_windows_with_heads_of_their_own_and_values_narrower_than_keys() -> None:
    """vLLM 0.32: the layers of all tokens take blocks twice as long."""
    found = plan(MIMO_V2, block_size=32)
    assert (found.num_blocks(), int((found.concurrent(8192) or 0) * 8192)) == (43_690, 451_334)
    assert sorted(len(group.pages) for group in found.groups) == [7, 8, 8, 8, 8, 9]


def test_layers_of_a_searched_architecture_have_heads_of_their_own_or_none() -> None:
    blocks = [{"attention": {"n_heads_in_group": 8}}, {"attention": {"no_op": True}}]
    config = {**LLAMA_3_8B, "model_type": "nemotron-nas", "num_key_value_heads": None}
    found = plan({**config, "block_configs": [*blocks * 15, *blocks[:1] * 2]})
    assert found.bytes_per_token == 17 * 4 * 2 * 128 * 2


def test_two_attentions_of_a_layer_have_a_cache_each() -> None:
    config = {key: value for key, value in DEEPSEEK_V3.items() if key != "quantization_config"}
    longcat = {**config, "model_type": "longcat_flash", "num_hidden_layers": 28}
    assert plan(longcat).bytes_per_token == 28 * 2 * 576 * 2


def test_experts_of_a_narrower_model_are_counted_so() -> None:
    config: Config = {
        **KIMI_LINEAR_48B,
        **{"hidden_size": 1024, "num_hidden_layers": 4, "num_experts": 64},
        **{"moe_intermediate_size": 512, "first_k_dense_replace": 1},
        **{"linear_attn_config": {**KIMI_LINEAR_48B["linear_attn_config"]}},
    }
    config["linear_attn_config"] |= {"full_attn_layers": [4], "kda_layers": [1, 2, 3]}
    narrow = {"model_type": "kimi_k3", "text_config": {**config, "routed_expert_hidden_size": 256}}
    counted = [shape_from_config(each, "test").weights for each in (config, narrow)]
    experts = [
        sum(matrix.elements for _, part in each for matrix in part.matrices if matrix.experts)
        for each in counted
        if each is not None
    ]
    assert experts == [3 * 64 * 3 * 512 * 1024, 3 * 64 * 3 * 512 * 256]


def test_fp8_and_a_recurrence_of_fp32_set_the_smallest_reusable_prefix() -> None:
    block = {
        dtype: plan(NEMOTRON_H_8B, kv_dtype=dtype).groups[0].page.block_size for dtype in Dtype
    }
    assert block[Dtype.FP8] == 2 * block[Dtype.BF16]


def test_nvfp4_keys_and_values_have_scales() -> None:
    assert plan(LLAMA_3_8B, kv_dtype=Dtype.NVFP4).bytes_per_token == 131_072 * 9 // 32


@pytest.mark.parametrize(("context", "tokens"), [(1, 1), (4, 4), (8, 8)])
def test_the_tokens_of_a_latent_cache_are_divided(context: int, tokens: int) -> None:
    divided = plan(DEEPSEEK_V3, parallel=Parallelism(tensor=8, context=context))
    whole = plan(DEEPSEEK_V3, parallel=Parallelism(tensor=8))
    assert divided.num_blocks() == whole.num_blocks()
    assert divided.concurrent(8192) == pytest.approx((whole.concurrent(8192) or 0) * tokens)


@pytest.mark.parametrize(
    ("config", "words"), [(LLAMA_3_8B, "would repeat a KV head"), (GEMMA_4_31B, "window")]
)
def test_tokens_that_cannot_be_divided_are_refused(config: Config, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan(config, parallel=Parallelism(tensor=8, context=2)).num_blocks()


def test_a_field_that_changes_sizes_and_is_not_read_is_named(tmp_path: Path) -> None:
    future = {**QWEN3_30B_A3B, "expert_tail_size": 256, "rope_theta": 1e6, "eos_token_id": 3}
    found = document(folder(tmp_path, future), "--gpu", "H200")
    assert (found["exact"], found["unread_fields"]) == (False, ["expert_tail_size"])
    assert "not exact" in found["verdict"]["text"]
    assert any("expert_tail_size" in note for note in found["notes"])
    assert document(folder(tmp_path, QWEN3_30B_A3B))["exact"] is True


def test_weights_come_from_the_index_of_their_files(tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 30 * GIB}, "weight_map": {"a": "model-1.safetensors"}}
    name = folder(tmp_path, LLAMA_3_8B, **{"model.safetensors.index": index})
    found = document(name, "--gpu", "H200", "-tp", "2")
    assert found["bytes"]["checkpoint"] == 30 * GIB
    assert found["bytes"]["weights"] == pytest.approx(15 * GIB, rel=0.001)
    uncounted = folder(tmp_path, {**LLAMA_3_8B, "model_type": "exaone_moe"})
    assert document(uncounted, "--gpu", "H200", "-tp", "2")["bytes"]["weights"] == 15 * GIB


def test_weights_come_from_the_headers_of_their_files(tmp_path: Path) -> None:
    """Divided by name, with an encoder that is there and without a drafter that is not loaded."""
    rows = {
        "model.embed_tokens.weight": ("BF16", [1000, 64]),
        "lm_head.weight": ("BF16", [1000, 64]),
        "visual.blocks.0.mlp.weight": ("BF16", [100, 64]),
        "model.layers.0.self_attn.k_proj.weight": ("BF16", [16, 64]),
        "model.layers.0.mlp.gate.weight": ("F32", [8, 64]),
        **{f"model.layers.0.mlp.experts.{n}.up_proj.weight": ("U8", [48, 32]) for n in range(8)},
        **{f"model.layers.0.mlp.experts.{n}.up_proj.scale": ("F8_E4M3", [48]) for n in range(8)},
        "model.layers.1.eh_proj.weight": ("BF16", [64, 128]),
    }
    described = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}
        for name, (dtype, shape) in rows.items()
    }
    text = json.dumps(described).encode()
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    small = {**LLAMA_3_8B, "num_hidden_layers": 1, "num_key_value_heads": 2, "head_dim": 8}
    found = document(folder(tmp_path, small), "--gpu", "H200", "-tp", "4")
    tables, experts = 2 * 1000 * 64 * 2, 8 * 48 * 32
    whole = 100 * 64 * 2 + 8 * 64 * 2 + 8 * 48
    assert found["bytes"]["weights"] == tables // 4 + experts // 4 + 8 * 64 * 2 + whole
    assert any("drafter of 16 KiB" in note for note in found["notes"])


def test_the_size_of_the_weights_can_be_given(tmp_path: Path) -> None:
    name = folder(tmp_path, DEEPSEEK_V4)
    found = document(name, "--gpu", "H200", "-tp", "4", "--weights-memory", "160GiB")
    assert found["bytes"]["weights"] == pytest.approx(40 * GIB)
    assert found["pool"]["blocks"] > 0


def as_groups(layers: tuple[KVLayer, ...]) -> list[Config]:
    """Every cache as a group of its own, by the file's names."""
    groups = []
    for each in layers:
        fields = {
            **{"kind": each.kind, "layers": [each.layer], "kv_heads": each.heads},
            **{"window": each.window, "entry_bytes": each.entry_bytes},
            **{"fp8_bytes": each.fp8_bytes, "tokens_per_entry": each.tokens_per_entry},
            **{"alignment": each.alignment, "block_size": each.block_size},
            "elements": each.head_elements or None,
        }
        if each.state is not None:
            names = ("channels", "kernel", "recurrent", "groups", "group_channels")
            own = {name: getattr(each.state, name) for name in (*names, "checkpoints")}
            fields["state"] = {**own, "lookahead": each.state.lookahead}
        groups.append({name: value for name, value in fields.items() if value is not None})
    return groups


@pytest.mark.parametrize(
    "config",
    [LLAMA_3_8B, GEMMA_4_31B, QWEN3_NEXT_80B, NEMOTRON_H_8B, DEEPSEEK_V3_2, DEEPSEEK_V4, MIMO_V2],
    ids=lambda config: str(config["model_type"]),
)
def test_a_file_of_groups_says_the_same_as_the_fields(tmp_path: Path, config: Config) -> None:
    shape = shape_from_config(config, "test")
    file = tmp_path / "layers.json"
    described = {"layers": shape.num_layers, "groups": as_groups(shape.layers)}
    file.write_text(json.dumps(described))
    count, layers = read_layers(file)
    assert count == shape.num_layers
    assert layers == shape.layers
    by_file = plan_of(shape_from_layers((count, layers), "test"), kv_dtype=Dtype.FP8)
    assert by_file.groups == plan(config, kv_dtype=Dtype.FP8, state_dtype=None).groups


def test_a_type_that_no_table_knows_is_planned_by_a_file_of_groups(tmp_path: Path) -> None:
    file = tmp_path / "layers.json"
    group = {"kind": "full", "layers": ["0-30", 31], "kv_heads": 8, "head_dim": 128}
    file.write_text(json.dumps({"groups": [group]}))
    name = folder(tmp_path, {**LLAMA_3_8B, "model_type": "future"})
    assert document(name, "--layers-file", str(file))["bytes"]["per_token"] == 131_072


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (
            {"kind": "dreaming", "layers": 1, "elements": 8},
            "groups[0]: Invalid enum value 'dreaming'",
        ),
        ({"kind": "full", "layers": 1}, "give head_dim, elements or entry_bytes"),
        ({"kind": "sliding", "layers": 1, "elements": 8}, "has a window"),
        ({"kind": "full", "layers": ["3-1"], "elements": 8}, "write a range as"),
        (
            {"kind": "full", "layers": 1, "elements": 8, "size": 1},
            "size is not among the fields of",
        ),
        ({"kind": "state", "layers": 1}, "a group of kind state has a state"),
    ],
)
def test_a_group_that_says_too_little_is_refused(tmp_path: Path, group: Config, words: str) -> None:
    file = tmp_path / "layers.json"
    file.write_text(json.dumps({"groups": [group]}))
    with pytest.raises(ConfigError) as caught:
        read_layers(file)
    assert words in str(caught.value)
