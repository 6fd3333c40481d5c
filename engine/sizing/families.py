"""Differences of each model type from Llama, as data: its weights and its defaults.

`defaults` are those of transformers' configuration class that published config.json files rely on.
tests/sizing compares every row with the modules that transformers builds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Windows = Literal["all", "alternate", "pattern", "late", "none"]
"""Sliding layers if `layer_types` is not given: all if a window is set; every other one, from the
first; all except every n-th; those from max_window_layers on; none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """None: the configuration's `attention_bias` or `mlp_bias` decides."""

    tied: bool = False
    """Output head and embedding share their matrix unless config.json says otherwise."""
    qkv_bias: bool | None = None
    output_bias: bool | None = None
    mlp_bias: bool | None = None
    gated_mlp: bool = True
    """The feed-forward network has three matrices; else two."""
    expert_bias: bool = False
    """Router and experts have biases."""
    shared_gate: bool = False
    """A gate of one column before the shared expert."""
    head_norms: bool = False
    """Norms over the heads of Q and K."""
    gated_query: bool = False
    """The query projection also produces an output gate."""
    norms: int = 2
    """Vectors of hidden_size in each layer."""
    norm_bias: bool = False
    sinks: bool = False
    """One learned logit for each query head."""
    learned_positions: bool = False
    windows: Windows = "all"
    defaults: Mapping[str, object] = field(default_factory=dict)


_GEMMA = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
_QWEN_MOE = {"decoder_sparse_step": 1}

FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        defaults={"num_key_value_heads": 8, "sliding_window": 4096},
    ),
    "granite": Family(),
    "smollm3": Family(tied=True, windows="none", defaults={"num_key_value_heads": 4}),
    "phi3": Family(qkv_bias=False, output_bias=False, mlp_bias=False),
    "qwen2": Family(qkv_bias=True, output_bias=False, mlp_bias=False, windows="late"),
    "qwen3": Family(mlp_bias=False, head_norms=True, windows="late", defaults={"head_dim": 128}),
    "qwen2_moe": Family(
        qkv_bias=True,
        output_bias=False,
        mlp_bias=False,
        shared_gate=True,
        windows="late",
        defaults=_QWEN_MOE,
    ),
    "qwen3_moe": Family(mlp_bias=False, head_norms=True, windows="late", defaults=_QWEN_MOE),
    "qwen3_next": Family(
        mlp_bias=False,
        head_norms=True,
        gated_query=True,
        shared_gate=True,
        windows="none",
        defaults={**_QWEN_MOE, "head_dim": 256, "full_attention_interval": 4},
    ),
    "mixtral": Family(
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        defaults={"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "gemma": Family(
        tied=True,
        mlp_bias=False,
        windows="none",
        defaults={"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256},
    ),
    "gemma2": Family(
        tied=True,
        mlp_bias=False,
        norms=4,
        windows="alternate",
        defaults={**_GEMMA, "vocab_size": 256_000, "sliding_window": 4096},
    ),
    "gemma3_text": Family(
        tied=True,
        mlp_bias=False,
        norms=4,
        head_norms=True,
        windows="pattern",
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
    "deepseek_v2": Family(windows="none"),
    "deepseek_v3": Family(mlp_bias=False, windows="none"),
    "gpt_oss": Family(
        qkv_bias=True,
        output_bias=True,
        mlp_bias=False,
        expert_bias=True,
        sinks=True,
        windows="alternate",
        defaults={"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128},
    ),
    "gpt2": Family(
        tied=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated_mlp=False,
        norm_bias=True,
        learned_positions=True,
        windows="none",
    ),
}

OTHER = Family()
"""Stands for unknown model types: KV is calculated, weights are not counted."""
