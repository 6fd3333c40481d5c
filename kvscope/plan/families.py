"""Differences of each model type from Llama, as data: the kinds of its layers, and its defaults.

`defaults` are those of transformers' configuration class that published config.json files rely on.
Every row is compared with the pool that vLLM builds: docs/reference/planned-models.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Layout = str
"""The rule for the kinds of layers if config.json does not list them; see `layouts`."""
StateKind = Literal["delta_net", "kda", "mamba1", "mamba2", "lightning", "short_conv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a model type does otherwise than Llama."""

    layout: Layout = "full"
    state: StateKind | None = None
    """The kind of state in layers without K and V."""
    attentions: int = 1
    """Attentions of a layer, each with a cache of its own."""
    window_and_own: bool = False
    """A token sees itself beside its window, which is one token longer by that."""
    counted: bool = True
    """The weights follow from the fields; else only what the layers keep."""
    tied: bool = False
    """Output head and embedding share their matrix unless config.json says otherwise."""
    gated_mlp: bool = True
    """The feed-forward network has three matrices; else two."""
    gated_query: bool = False
    """The query projection also makes an output gate."""
    experts_beside: bool = False
    """Experts stand beside a dense network."""
    always_shared: bool = False
    """A shared expert stands in every layer, with or without routed ones."""
    feed_forward: bool = True
    """Every layer has a feed-forward network beside its attention or state."""
    defaults: Mapping[str, object] = field(default_factory=dict)


def _of(*names: str, defaults: Mapping[str, object] | None = None, **own: Any) -> dict[str, Family]:
    return dict.fromkeys(names, Family(defaults=defaults or {}, **own))


_GEMMA = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
_GEMMA_3 = {
    **_GEMMA,
    **{"vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216},
    **{"num_hidden_layers": 26, "max_position_embeddings": 131_072},
    **{"sliding_window": 4096, "sliding_window_pattern": 6},
}
_GEMMA_4 = {
    **_GEMMA_3,
    **{"enable_moe_block": False, "global_head_dim": 512, "hidden_size_per_layer_input": 256},
    **{"num_hidden_layers": 30, "sliding_window": 512, "vocab_size": 262_144},
    "vocab_size_per_layer_input": 262_144,
}
_GEMMA_4_UNIFIED = {
    **_GEMMA_4,
    **{"hidden_size_per_layer_input": 0, "max_position_embeddings": 262_144},
    "sliding_window": 1024,
}
_GEMMA_3N = {
    **{"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 2},
    **{"num_hidden_layers": 35, "num_kv_shared_layers": 15},
    **{"sliding_window": 512, "sliding_window_pattern": 5},
}
_EIGHT = {"num_key_value_heads": 8}
_MIXTRAL = {**_EIGHT, "num_local_experts": 8, "num_experts_per_tok": 2}
_QWEN_MOE = {"decoder_sparse_step": 1}
_QWEN3_NEXT = {**_QWEN_MOE, "head_dim": 256, "full_attention_interval": 4}
_MAMBA = {"state_size": 16, "conv_kernel": 4, "expand": 2}
_MAMBA_2 = {
    **{"mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_groups": 1},
    "mamba_n_heads": 128,
}
_LLAMA_4 = {
    **_EIGHT,
    **{"num_experts_per_tok": 1, "num_local_experts": 16, "interleave_moe_layer_step": 1},
    **{"no_rope_layer_interval": 4, "attention_chunk_size": 8192, "n_shared_experts": 1},
}
_JAMBA = {
    **{"attn_layer_period": 8, "attn_layer_offset": 4},
    **{"expert_layer_period": 2, "expert_layer_offset": 1},
    **{"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2},
}
_NEMOTRON_H = {"head_dim": 128, **_EIGHT, "mamba_ssm_cache_dtype": "float32"}
_MAMBA_ALONE = {**_MAMBA, "num_heads": 128, "head_dim": 64, "state_size": 128, "n_groups": 8}

FAMILIES: Mapping[str, Family] = {
    **_of("llama", "granite", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "arcee"),
    **_of("glm", "glm4", "helium", "hunyuan_v1_dense", "internlm2", "internlm3", "seed_oss"),
    **_of("olmo", "olmo2", "olmoe", "exaone", "ernie4_5", "stablelm", "minimax_m2", "mimo"),
    **_of("apertus", "afmoe", "granite_swa", "hyperclovax", "axk1"),
    **_of("smollm3", tied=True, defaults={"num_key_value_heads": 4}),
    **_of("cohere", tied=True),
    **_of("mistral", layout="window", defaults={**_EIGHT, "sliding_window": 4096}),
    **_of("ministral3", layout="window", defaults={**_EIGHT, "head_dim": 128}),
    **_of("mixtral", layout="window", defaults=_MIXTRAL),
    **_of("phi3", layout="window"),
    **_of("starcoder2", layout="window", gated_mlp=False, tied=True),
    **_of("qwen2", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", layout="late"),
    **_of("qwen3", layout="late", defaults={"head_dim": 128}),
    **_of("qwen2_moe", "qwen3_moe", "qwen3_vl_moe", layout="late", defaults=_QWEN_MOE),
    **_of("qwen3_omni_moe", "qwen3_omni_moe_thinker", layout="late", defaults=_QWEN_MOE),
    **_of(
        *("qwen3_next", "qwen3_5", "qwen3_5_moe"),
        layout="interval",
        state="delta_net",
        gated_query=True,
        defaults=_QWEN3_NEXT,
    ),
    **_of(
        *("glm4_moe", "glm4v_moe", "glm4_moe_lite"),
        defaults={"first_k_dense_replace": 1, "n_shared_experts": 1},
    ),
    **_of("glm4v", "glm_ocr"),
    **_of("glm_moe_dsa", defaults={"index_head_dim": 128}),
    **_of("llama4", layout="rope", defaults=_LLAMA_4),
    **_of("gemma", tied=True, defaults={**_GEMMA, "num_key_value_heads": 16}),
    **_of(
        "gemma2",
        layout="alternate",
        tied=True,
        defaults={**_GEMMA, "vocab_size": 256_000, "sliding_window": 4096},
    ),
    **_of("gemma3", layout="pattern", tied=True, defaults=_GEMMA_3),
    **_of("gemma3n", layout="pattern", counted=False, defaults=_GEMMA_3N),
    **_of("gemma4", layout="pattern", tied=True, experts_beside=True, defaults=_GEMMA_4),
    **_of(
        "gemma4_unified",
        layout="pattern",
        tied=True,
        experts_beside=True,
        defaults=_GEMMA_4_UNIFIED,
    ),
    **_of(
        "kimi_linear",
        layout="kda",
        state="kda",
        defaults={"first_k_dense_replace": 1, "mamba_ssm_dtype": "float32"},
    ),
    **_of(
        "gpt_oss",
        layout="alternate",
        defaults={**_EIGHT, "head_dim": 64, "sliding_window": 128},
    ),
    **_of(
        *("minimax", "minimax_text_01", "minimax_m1"),
        layout="numbers",
        state="lightning",
        defaults=_MIXTRAL,
    ),
    **_of("jamba", layout="period", state="mamba1", defaults=_JAMBA),
    **_of("bamba", layout="indices", state="mamba2", defaults=_MAMBA_2),
    **_of(
        "granitemoehybrid",
        layout="indices",
        state="mamba2",
        always_shared=True,
        defaults=_MAMBA_2,
    ),
    **_of("falcon_h1", layout="both", state="mamba2", defaults={**_MAMBA_2, "mamba_d_ssm": 1024}),
    **_of(
        "nemotron_h",
        layout="letters",
        state="mamba2",
        gated_mlp=False,
        feed_forward=False,
        defaults=_NEMOTRON_H,
    ),
    **_of(
        *("mamba", "falcon_mamba"),
        layout="states",
        state="mamba1",
        tied=True,
        feed_forward=False,
        defaults=_MAMBA,
    ),
    **_of("mamba2", layout="states", state="mamba2", feed_forward=False, defaults=_MAMBA_ALONE),
    **_of("gpt2", "bloom", "opt", "gpt_neox", "codegen", "gptj", "phi", tied=True, gated_mlp=False),
    **_of("nemotron", gated_mlp=False),
    **_of("falcon", tied=True, gated_mlp=False),
    **_of("gpt_bigcode", tied=True, gated_mlp=False, defaults={"multi_query": True}),
    **_of(
        *("cohere2", "cohere2_moe"),
        layout="pattern",
        window_and_own=True,
        tied=True,
        defaults={"sliding_window_pattern": 4},
    ),
    **_of("olmo3", "exaone4", layout="pattern", defaults={"sliding_window_pattern": 4}),
    **_of("deepseek_v4", "deepseek_ref", layout="compressed", counted=False),
    **_of("lfm2", "lfm2_moe", layout="indices", state="short_conv", counted=False),
    **_of("longcat_flash", attentions=2, counted=False),
    **_of("whisper", layout="pairs", counted=False),
    **_of(
        *("aria", "dbrx", "ernie4_5_moe", "ernie4_5_vl_moe", "exaone_moe", "granitemoe", "laguna"),
        *("granitemoeshared", "granitemoe_swa", "hunyuan_v1_moe", "hy_v3", "hy_v4"),
        *("mimo_v2", "mimo_v2_flash", "minimax_m3", "paddleocr_vl"),
        *("nemotron-nas", "step3p5", "step3p7"),
        counted=False,
    ),
}
"""By model_type, that of the text decoder without the `_text` that some add to it."""


def find_family(model_type: str) -> Family | None:
    """None: nothing is known of its layers."""
    name = model_type.removesuffix("_text")
    return FAMILIES.get(name) or FAMILIES.get(name.removesuffix("_vl"))
