"""More than twenty checkpoints that people plan, as far as memory depends on their config.json.

Field by field those of the published files; three have another checkpoint's quantization. `weights`
and `nbytes` are published figures, by `source`; for the others the oracle is transformers.
"""

from dataclasses import dataclass
from typing import Any

from tests.sizing.configs import (
    DEEPSEEK_V2_LITE,
    GEMMA_4_26B_A4B,
    GEMMA_4_31B,
    GEMMA_4_E2B,
    GEMMA_4_E4B,
    GPT_OSS_20B,
    LLAMA_3_8B,
    MIXTRAL_8X7B,
    QWEN3_30B_A3B,
    QWEN3_NEXT_80B,
)

Config = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """`token`: bytes of one more token in a long sequence, bf16, as vLLM's pool counts them."""

    config: Config
    architecture: str
    token: int
    weights: int | None = None
    nbytes: int | None = None
    source: str = "transformers' modules"


LLAMA_70B: Config = {
    **LLAMA_3_8B,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "max_position_embeddings": 131072,
}
AWQ: Config = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": 128,
    "zero_point": True,
    "version": "gemm",
    "modules_to_not_convert": None,
}
MXFP4: Config = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}
GPT_OSS_120B: Config = {
    **GPT_OSS_20B,
    "num_hidden_layers": 36,
    "num_local_experts": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}
DEEPSEEK_V3: Config = {
    **DEEPSEEK_V2_LITE,
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "vocab_size": 129280,
    "n_group": 8,
    "topk_group": 4,
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    },
}
GEMMA_3_27B: Config = {
    "model_type": "gemma3_text",
    "head_dim": 128,
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_hidden_layers": 62,
    "num_key_value_heads": 16,
    "sliding_window": 1024,
    "vocab_size": 262208,
    "torch_dtype": "bfloat16",
}
QWEN3_5_27B: Config = {
    "model_type": "qwen3_5_text",
    "attention_bias": False,
    "dtype": "bfloat16",
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144,
    "num_attention_heads": 24,
    "num_hidden_layers": 64,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "vocab_size": 248320,
}
NEMOTRON_H_8B: Config = {
    "model_type": "nemotron_h",
    "attention_bias": False,
    "conv_kernel": 4,
    "expand": 2,
    "head_dim": 128,
    "hidden_size": 4096,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "intermediate_size": 21504,
    "mamba_head_dim": 64,
    "mamba_num_heads": 128,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "n_groups": 8,
    "num_attention_heads": 32,
    "num_hidden_layers": 52,
    "num_key_value_heads": 8,
    "ssm_state_size": 128,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_conv_bias": True,
    "vocab_size": 131072,
}
MINIMAX_TEXT_01: Config = {
    "model_type": "minimax_text_01",
    "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
    "head_dim": 128,
    "hidden_size": 6144,
    "intermediate_size": 9216,
    "max_position_embeddings": 10240000,
    "num_attention_heads": 64,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "shared_intermediate_size": 0,
    "tie_word_embeddings": False,
    "vocab_size": 200064,
}
_KIMI_FULL = [4, 8, 12, 16, 20, 24, 27]
KIMI_LINEAR_48B: Config = {
    "model_type": "kimi_linear",
    "dtype": "bfloat16",
    "first_k_dense_replace": 1,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "kv_lora_rank": 512,
    "linear_attn_config": {
        "full_attn_layers": _KIMI_FULL,
        "head_dim": 128,
        "kda_layers": [layer for layer in range(1, 28) if layer not in _KIMI_FULL],
        "num_heads": 32,
        "short_conv_kernel_size": 4,
    },
    "moe_intermediate_size": 1024,
    "moe_layer_freq": 1,
    "num_attention_heads": 32,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "num_hidden_layers": 27,
    "num_key_value_heads": 32,
    "num_shared_experts": 1,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
    "v_head_dim": 128,
    "vocab_size": 163840,
    "max_position_embeddings": 1048576,
}
FALCON_H1_7B: Config = {
    "model_type": "falcon_h1",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 3072,
    "intermediate_size": 12288,
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_head": 128,
    "mamba_d_ssm": 3072,
    "mamba_d_state": 256,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 24,
    "mamba_proj_bias": False,
    "mamba_rms_norm": False,
    "max_position_embeddings": 262144,
    "num_attention_heads": 12,
    "num_hidden_layers": 44,
    "num_key_value_heads": 2,
    "projectors_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 130048,
}
JAMBA: Config = {
    "model_type": "jamba",
    "attn_layer_offset": 4,
    "attn_layer_period": 8,
    "expert_layer_offset": 1,
    "expert_layer_period": 2,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_state": 16,
    "mamba_dt_rank": 256,
    "mamba_expand": 2,
    "mamba_proj_bias": False,
    "max_position_embeddings": 262144,
    "num_attention_heads": 32,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 65536,
}
GRANITE_4_H_SMALL: Config = {
    "model_type": "granitemoehybrid",
    "attention_bias": False,
    "hidden_size": 4096,
    "intermediate_size": 768,
    "layer_types": ["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)],
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 128,
    "mamba_proj_bias": False,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 40,
    "num_key_value_heads": 8,
    "num_local_experts": 72,
    "shared_intermediate_size": 1536,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 100352,
}
BAMBA_9B: Config = {
    "model_type": "bamba",
    "attention_bias": False,
    "attn_layer_indices": [9, 18, 27],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 128,
    "mamba_proj_bias": False,
    "max_position_embeddings": 262144,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
MAMBA_2_8B: Config = {
    "model_type": "mamba",
    "conv_kernel": 4,
    "expand": 2,
    "hidden_size": 2560,
    "intermediate_size": 5120,
    "num_hidden_layers": 64,
    "state_size": 16,
    "time_step_rank": 160,
    "use_bias": False,
    "use_conv_bias": True,
    "vocab_size": 50280,
}
CODESTRAL_MAMBA_7B: Config = {
    "model_type": "mamba2",
    "conv_kernel": 4,
    "expand": 2,
    "head_dim": 64,
    "hidden_size": 4096,
    "n_groups": 8,
    "num_heads": 128,
    "num_hidden_layers": 64,
    "state_size": 128,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_bias": False,
    "use_conv_bias": True,
    "vocab_size": 32768,
}
LLAMA_4_SCOUT: Config = {
    "model_type": "llama4_text",
    "attention_bias": False,
    "attention_chunk_size": 8192,
    "head_dim": 128,
    "hidden_size": 5120,
    "interleave_moe_layer_step": 1,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "max_position_embeddings": 10485760,
    "no_rope_layers": [],
    "num_attention_heads": 40,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
    "num_local_experts": 16,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 202048,
}
GLM_4_5_AIR: Config = {
    "model_type": "glm4_moe",
    "attention_bias": True,
    "first_k_dense_replace": 1,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 10944,
    "max_position_embeddings": 131072,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_attention_heads": 96,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 46,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_qk_norm": False,
    "vocab_size": 151552,
}

KIB = 1024
PUBLISHED = {
    "Llama-3.1-8B": Checkpoint(
        config=LLAMA_3_8B,
        architecture="LlamaForCausalLM",
        token=128 * KIB,
        weights=8_030_261_248,
        nbytes=16_060_522_496,
        source="total_size of its index",
    ),
    "Llama-3.1-70B": Checkpoint(
        config=LLAMA_70B,
        architecture="LlamaForCausalLM",
        token=320 * KIB,
        weights=70_553_706_496,
        nbytes=141_107_412_992,
        source="total_size of its index",
    ),
    "Llama-3.1-8B-AWQ": Checkpoint(
        config={**LLAMA_3_8B, "torch_dtype": "float16", "quantization_config": AWQ},
        architecture="LlamaForCausalLM",
        token=128 * KIB,
        weights=8_030_261_248,
    ),
    "Qwen3-30B-A3B": Checkpoint(
        config=QWEN3_30B_A3B,
        architecture="Qwen3MoeForCausalLM",
        token=96 * KIB,
        nbytes=61_064_245_248,
        source="total_size of its index",
    ),
    "Mixtral-8x7B": Checkpoint(
        config=MIXTRAL_8X7B,
        architecture="MixtralForCausalLM",
        token=128 * KIB,
        weights=46_702_792_704,
        source="its paper: 47B, 13B for a token",
    ),
    "DeepSeek-V3": Checkpoint(
        config=DEEPSEEK_V3, architecture="DeepseekV3ForCausalLM", token=61 * 576 * 2
    ),
    "DeepSeek-R1-AWQ": Checkpoint(
        config={
            **DEEPSEEK_V3,
            "torch_dtype": "float16",
            "quantization_config": {**AWQ, "group_size": 64},
        },
        architecture="DeepseekV3ForCausalLM",
        token=61 * 576 * 2,
        nbytes=364_589_799_936 - 58 * 256 * 2,
        source="total_size of kvcache-ai/sglang_awq, less the routers' selection biases",
    ),
    "gpt-oss-20b": Checkpoint(
        config={**GPT_OSS_20B, "quantization_config": MXFP4},
        architecture="GptOssForCausalLM",
        token=24 * KIB,
        nbytes=13_761_264_768,
        source="total_size of its index; its model card: 12.8 GiB",
    ),
    "gpt-oss-120b": Checkpoint(
        config={**GPT_OSS_120B, "quantization_config": MXFP4},
        architecture="GptOssForCausalLM",
        token=36 * KIB,
        nbytes=65_248_815_744,
        source="total_size of its index; its model card: 60.8 GiB",
    ),
    "gemma-3-27b": Checkpoint(config=GEMMA_3_27B, architecture="Gemma3ForCausalLM", token=80 * KIB),
    "gemma-4-31B": Checkpoint(config=GEMMA_4_31B, architecture="Gemma4ForCausalLM", token=80 * KIB),
    "gemma-4-26B-A4B": Checkpoint(
        config=GEMMA_4_26B_A4B, architecture="Gemma4ForCausalLM", token=20 * KIB
    ),
    "gemma-4-E4B": Checkpoint(config=GEMMA_4_E4B, architecture="Gemma4ForCausalLM", token=16 * KIB),
    "gemma-4-E2B": Checkpoint(config=GEMMA_4_E2B, architecture="Gemma4ForCausalLM", token=6 * KIB),
    "Qwen3-Next-80B": Checkpoint(
        config=QWEN3_NEXT_80B, architecture="Qwen3NextForCausalLM", token=24 * KIB
    ),
    "Qwen3.5-27B": Checkpoint(
        config=QWEN3_5_27B, architecture="Qwen3_5ForCausalLM", token=64 * KIB
    ),
    "Nemotron-H-8B": Checkpoint(
        config=NEMOTRON_H_8B, architecture="NemotronHForCausalLM", token=16 * KIB
    ),
    "MiniMax-Text-01": Checkpoint(
        config=MINIMAX_TEXT_01, architecture="MiniMaxText01ForCausalLM", token=40 * KIB
    ),
    "Kimi-Linear-48B": Checkpoint(
        config=KIMI_LINEAR_48B, architecture="KimiLinearForCausalLM", token=7 * 576 * 2
    ),
    "Falcon-H1-7B": Checkpoint(
        config=FALCON_H1_7B, architecture="FalconH1ForCausalLM", token=44 * KIB
    ),
    "Jamba-v0.1": Checkpoint(config=JAMBA, architecture="JambaForCausalLM", token=16 * KIB),
    "Granite-4.0-H-Small": Checkpoint(
        config=GRANITE_4_H_SMALL, architecture="GraniteMoeHybridForCausalLM", token=16 * KIB
    ),
    "Bamba-9B": Checkpoint(config=BAMBA_9B, architecture="BambaForCausalLM", token=12 * KIB),
    "Mamba-2.8B": Checkpoint(config=MAMBA_2_8B, architecture="MambaForCausalLM", token=0),
    "Codestral-Mamba-7B": Checkpoint(
        config=CODESTRAL_MAMBA_7B,
        architecture="Mamba2ForCausalLM",
        token=0,
        weights=7_285_403_648,
        source="its model card",
    ),
    "Llama-4-Scout": Checkpoint(
        config=LLAMA_4_SCOUT, architecture="Llama4ForCausalLM", token=48 * KIB
    ),
    "GLM-4.5-Air": Checkpoint(
        config=GLM_4_5_AIR, architecture="Glm4MoeForCausalLM", token=184 * KIB
    ),
}
