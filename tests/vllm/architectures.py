"""A configuration for every text model of vLLM's registry, by default of transformers' class.

Runs in vLLM's Python. Layers beyond a dozen say nothing new, and take long to build.
"""

import json
from collections.abc import Iterator
from typing import Any

from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto
from vllm.model_executor.models import registry

LAYERS = 12
_MAPPINGS = (
    *("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES"),
    *("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"),
)
_ALSO: dict[str, dict[str, object]] = {
    "afmoe": {"score_func": "sigmoid", "route_norm": True, "n_group": 1, "topk_group": 1},
    "glm4_moe": {"head_dim": 128},
    "glm4_moe_lite": {"first_k_dense_replace": 1},
    "granitemoehybrid": {"layer_types": ["mamba", "mamba", "attention", "mamba"] * 3},
    "hy_v3": {"first_k_dense_replace": 1, "expert_hidden_dim": 1536, "route_norm": True},
    "longcat_flash": {
        **{"mla_scale_q_lora": True, "mla_scale_kv_lora": True},
        "zero_expert_type": "identity",
    },
    "minimax_m2": {"rotary_dim": 64, "scoring_func": "sigmoid", "use_routing_bias": True},
    "mimo_v2_flash": {
        **{"hybrid_layer_pattern": [0, 1, 1, 1] * 3, "moe_layer_freq": [0, *[1] * 11]},
        **{"layernorm_epsilon": 1e-5, "swa_num_key_value_heads": 8, "swa_head_dim": 192},
        **{"swa_num_attention_heads": 64, "swa_v_head_dim": 128, "v_head_dim": 128},
        **{"head_dim": 192, "sliding_window": 128, "partial_rotary_factor": 0.334},
    },
    "nemotron": {"num_key_value_heads": 8},
    "lfm2": {"block_dim": 2560},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention"] * 4},
    "deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408},
}
"""Fields without which vLLM does not build a model, by its type."""
_BUILT_BY = {"DeepseekV32ForCausalLM": "DeepseekV3ForCausalLM"}
"""The same layers in a class without CUDA's modules."""


def architectures() -> Iterator[dict[str, Any]]:
    """Cases of `plan_pools`, in the registry's order."""
    types: dict[str, str] = {}
    for mapping in _MAPPINGS:
        for model_type, names in getattr(modeling_auto, mapping).items():
            for name in names if isinstance(names, tuple | list) else [names]:
                types.setdefault(name, model_type)
    for name in registry._TEXT_GENERATION_MODELS:
        config: dict[str, Any] = {}
        if name in types:
            config = _config(types[name])
        elif name in _BUILT_BY:
            config = _config("deepseek_v32")
        if config:
            yield _case(name, config)


def _config(model_type: str) -> dict[str, Any]:
    made = CONFIG_MAPPING[model_type]()
    config = json.loads(made.to_json_string(use_diff=False))
    config.pop("per_layer_config", None)
    return _shortened({**config, **_ALSO.get(model_type, {})})


def _shortened(config: dict[str, Any]) -> dict[str, Any]:
    """The same with few layers, here and in nested parts."""
    count = config.get("num_hidden_layers")
    short: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            short[key] = _shortened(value)
        elif isinstance(value, list) and len(value) == count:
            short[key] = value[:LAYERS]
        else:
            short[key] = value
    whole = config.get("num_kv_shared_layers") or config.get("hybrid_layer_ids")
    if isinstance(count, int) and count > LAYERS and not whole:
        short["num_hidden_layers"] = LAYERS
        return short
    return {**config, **{key: value for key, value in short.items() if isinstance(value, dict)}}


def _case(name: str, config: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "config": {**config, "architectures": [_BUILT_BY.get(name, name)]},
        "tensor": 1,
        "block_size": 32,
        "max_model_len": 8192,
        "max_num_batched_tokens": 2048,
        "state_dtype": "auto",
        "memory": 24 << 30,
    }
