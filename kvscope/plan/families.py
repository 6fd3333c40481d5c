"""Differences of each model type from Llama, as data: its layers, its weights, its defaults.

`defaults` are those of transformers' configuration class that published config.json files rely on.
tests/sizing compares every row with the modules that transformers builds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Layout = Literal[
    "full",
    "window",
    "alternate",
    "pattern",
    "late",
    "interval",
    "period",
    "indices",
    "letters",
    "numbers",
    "kda",
    "rope",
    "both",
    "states",
    "pairs",
    "slides where",
    "blocks",
    "compressed",
]
"""The rule for the kinds of layers if config.json does not list them; see `layouts`."""
StateKind = Literal["delta_net", "kda", "mamba1", "mamba2", "lightning", "short_conv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """None: the configuration's `attention_bias` or `mlp_bias` decides."""

    layout: Layout = "full"
    state: StateKind | None = None
    """The kind of state in layers without K and V."""
    attentions: int = 1
    """Attentions of a layer, each with a cache of its own."""
    counted: bool = True
    """The weights are known; else only what the layers keep."""
    tied: bool = False
    """Output head and embedding share their matrix unless config.json says otherwise."""
    may_tie: bool = True
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    mlp_bias: bool | None = None
    gated_mlp: bool = True
    """The feed-forward network has three matrices; else two."""
    expert_bias: bool = False
    """Router and experts have biases."""
    shared_gate: bool = False
    """A gate of one column before the shared expert."""
    experts_beside: bool = False
    """Experts stand beside a dense network, with three norms and a scaled router of their own."""
    always_shared: bool = False
    """A shared expert stands in every layer, with or without routed ones."""
    head_norms: bool | str = False
    """Norms over the heads of Q and K; or the field that says so."""
    gated_query: bool = False
    """The query projection also makes an output gate."""
    norms: int = 2
    """Vectors of hidden_size in each layer."""
    norm_bias: bool = False
    sinks: bool = False
    """One learned logit for each query head."""
    learned_positions: bool = False
    feed_forward: bool = True
    """Every layer has a feed-forward network beside its attention or state."""
    state_norms: bool = False
    """Norms over the step, B and C of a Mamba-1 layer."""
    gated_norm: bool | str = True
    """A Mamba-2 layer has a norm over its output; or the field that says so."""
    defaults: Mapping[str, object] = field(default_factory=dict)


_GEMMA = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
_QWEN_MOE = {"decoder_sparse_step": 1}
_MAMBA2 = {"mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_groups": 1}

_LLAMA = Family()
_MISTRAL = Family(
    layout="window",
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
    defaults={"num_key_value_heads": 8, "sliding_window": 4096},
)
_QWEN2 = Family(layout="late", qkv_bias=True, output_bias=False, mlp_bias=False)
_QWEN3 = Family(layout="late", mlp_bias=False, head_norms=True, defaults={"head_dim": 128})
_QWEN3_MOE = Family(layout="late", mlp_bias=False, head_norms=True, defaults=_QWEN_MOE)
_QWEN3_NEXT = Family(
    layout="interval",
    state="delta_net",
    mlp_bias=False,
    head_norms=True,
    gated_query=True,
    shared_gate=True,
    defaults={**_QWEN_MOE, "head_dim": 256, "full_attention_interval": 4},
)
_GEMMA_4 = Family(
    layout="pattern",
    tied=True,
    mlp_bias=False,
    norms=4,
    head_norms=True,
    experts_beside=True,
    defaults={
        **_GEMMA,
        "enable_moe_block": False,
        "global_head_dim": 512,
        "hidden_size": 2304,
        "hidden_size_per_layer_input": 256,
        "intermediate_size": 9216,
        "max_position_embeddings": 131_072,
        "num_hidden_layers": 30,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "vocab_size": 262_144,
        "vocab_size_per_layer_input": 262_144,
    },
)
_DEEPSEEK_V3 = Family(mlp_bias=False)
_MINIMAX = Family(
    layout="numbers",
    state="lightning",
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
    defaults={"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
)

FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "ministral3": replace(_MISTRAL, defaults={"num_key_value_heads": 8, "head_dim": 128}),
    "granite": _LLAMA,
    "smollm3": Family(tied=True, defaults={"num_key_value_heads": 4}),
    "phi3": Family(layout="window", qkv_bias=False, output_bias=False, mlp_bias=False),
    "qwen2": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "mimo": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen2_moe": replace(_QWEN2, shared_gate=True, defaults=_QWEN_MOE),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_omni_moe_text": _QWEN3_MOE,
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_5_text": replace(_QWEN3_NEXT, shared_gate=False),
    "qwen3_5_moe_text": _QWEN3_NEXT,
    "mixtral": replace(
        _MISTRAL,
        defaults={"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "glm4_moe": Family(
        output_bias=False,
        mlp_bias=False,
        head_norms="use_qk_norm",
        defaults={"first_k_dense_replace": 1, "n_shared_experts": 1},
    ),
    "llama4_text": Family(
        layout="rope",
        mlp_bias=False,
        defaults={
            "num_key_value_heads": 8,
            "num_experts_per_tok": 1,
            "num_local_experts": 16,
            "interleave_moe_layer_step": 1,
            "no_rope_layer_interval": 4,
            "attention_chunk_size": 8192,
            "n_shared_experts": 1,
        },
    ),
    "gemma": Family(
        tied=True,
        mlp_bias=False,
        defaults={"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256},
    ),
    "gemma2": Family(
        layout="alternate",
        tied=True,
        mlp_bias=False,
        norms=4,
        defaults={**_GEMMA, "vocab_size": 256_000, "sliding_window": 4096},
    ),
    "gemma3_text": Family(
        layout="pattern",
        tied=True,
        mlp_bias=False,
        norms=4,
        head_norms=True,
        defaults={
            **_GEMMA,
            "vocab_size": 262_208,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "max_position_embeddings": 131_072,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
        },
    ),
    "gemma4_text": _GEMMA_4,
    "gemma4_unified_text": replace(
        _GEMMA_4,
        defaults={
            **_GEMMA_4.defaults,
            "hidden_size_per_layer_input": 0,
            "max_position_embeddings": 262_144,
            "sliding_window": 1024,
        },
    ),
    "deepseek_v2": _LLAMA,
    **dict.fromkeys(("deepseek_v3", "deepseek_v32", "kimi_k2"), _DEEPSEEK_V3),
    "glm_moe_dsa": Family(mlp_bias=False, defaults={"index_head_dim": 128}),
    **dict.fromkeys(("deepseek_v4", "deepseek_ref"), Family(layout="compressed", counted=False)),
    "kimi_linear": Family(
        layout="kda",
        may_tie=False,
        state="kda",
        mlp_bias=False,
        defaults={"first_k_dense_replace": 1, "mamba_ssm_dtype": "float32"},
    ),
    "gpt_oss": Family(
        layout="alternate",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=False,
        expert_bias=True,
        sinks=True,
        defaults={"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128},
    ),
    "minimax": _MINIMAX,
    "minimax_text_01": _MINIMAX,
    "minimax_m1": _MINIMAX,
    "jamba": Family(
        layout="period",
        state="mamba1",
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        state_norms=True,
        defaults={
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_conv_bias": True,
        },
    ),
    "bamba": Family(
        layout="indices",
        state="mamba2",
        defaults={**_MAMBA2, "mamba_n_heads": 128, "mamba_conv_bias": True},
    ),
    "granitemoehybrid": Family(
        layout="indices",
        state="mamba2",
        output_bias=None,
        mlp_bias=False,
        always_shared=True,
        defaults={**_MAMBA2, "mamba_n_heads": 128, "mamba_conv_bias": True},
    ),
    "falcon_h1": Family(
        layout="both",
        state="mamba2",
        gated_norm="mamba_rms_norm",
        defaults={**_MAMBA2, "mamba_n_heads": 128, "mamba_d_ssm": 1024, "mamba_conv_bias": True},
    ),
    "nemotron_h": Family(
        layout="letters",
        may_tie=False,
        state="mamba2",
        qkv_bias=False,
        output_bias=False,
        gated_mlp=False,
        norms=1,
        feed_forward=False,
        defaults={
            "head_dim": 128,
            "num_key_value_heads": 8,
            "use_conv_bias": True,
            "mamba_ssm_cache_dtype": "float32",
        },
    ),
    "mamba": Family(
        layout="states",
        state="mamba1",
        tied=True,
        norms=1,
        feed_forward=False,
        defaults={"state_size": 16, "conv_kernel": 4, "expand": 2, "use_conv_bias": True},
    ),
    "falcon_mamba": Family(
        layout="states",
        state="mamba1",
        tied=True,
        norms=1,
        feed_forward=False,
        defaults={"state_size": 16, "conv_kernel": 4, "expand": 2, "use_conv_bias": True},
    ),
    "mamba2": Family(
        layout="states",
        state="mamba2",
        norms=1,
        feed_forward=False,
        defaults={
            "num_heads": 128,
            "head_dim": 64,
            "state_size": 128,
            "conv_kernel": 4,
            "expand": 2,
            "n_groups": 8,
            "use_conv_bias": True,
        },
    ),
    "gpt2": Family(
        tied=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated_mlp=False,
        norm_bias=True,
        learned_positions=True,
    ),
    "lfm2": Family(layout="indices", state="short_conv", counted=False),
    "lfm2_moe": Family(layout="indices", state="short_conv", counted=False),
    "longcat_flash": Family(attentions=2, counted=False),
    "whisper": Family(layout="pairs", counted=False),
    "cohere2": Family(layout="pattern", counted=False, defaults={"sliding_window_pattern": 4}),
    "olmo3": Family(layout="pattern", counted=False, defaults={"sliding_window_pattern": 4}),
    "exaone4": Family(layout="pattern", counted=False, defaults={"sliding_window_pattern": 4}),
    "starcoder2": Family(layout="window", counted=False),
    "gpt_bigcode": Family(counted=False, defaults={"multi_query": True}),
    **{
        name: Family(counted=False)
        for name in (
            *("arcee", "bloom", "cohere", "codegen", "ernie4_5", "ernie4_5_moe", "exaone"),
            *("falcon", "glm", "glm4", "gpt_neox", "gptj", "granitemoe", "granitemoeshared"),
            *("helium", "hunyuan_v1_dense", "hunyuan_v1_moe", "internlm2", "internlm3"),
            *("minimax_m2", "minimax_m3", "mimo_v2", "mimo_v2_flash", "nemotron", "nemotron-nas"),
            *("olmo", "olmo2", "olmoe", "opt", "phi", "seed_oss", "stablelm", "step3p5", "step3p7"),
        )
    },
}
"""By model_type, that of the text decoder."""

_OUTER = {
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "llama4": "llama4_text",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
}
"""Types of whole multimodal models whose config.json keeps the decoder's fields at the top."""


def find_family(model_type: str) -> Family | None:
    """None: nothing is known of its layers."""
    for name in (model_type, _OUTER.get(model_type, ""), model_type.removesuffix("_text")):
        if name in FAMILIES:
            return FAMILIES[name]
    return FAMILIES.get(model_type.removesuffix("_vl"))
