"""More than twenty checkpoints that people plan: their config.json, and their published size.

`weights` and `nbytes` are published figures, by `source`; for others the oracle is transformers.
"""

from dataclasses import dataclass

from tests.sizing.configs import (
    AWQ,
    BAMBA_9B,
    CODESTRAL_MAMBA_7B,
    DEEPSEEK_V3,
    FALCON_H1_7B,
    GEMMA_3_27B,
    GEMMA_4_26B_A4B,
    GEMMA_4_31B,
    GEMMA_4_E2B,
    GEMMA_4_E4B,
    GLM_4_5_AIR,
    GPT_OSS_20B,
    GPT_OSS_120B,
    GRANITE_4_H_SMALL,
    JAMBA,
    KIMI_LINEAR_48B,
    LLAMA_3_8B,
    LLAMA_4_SCOUT,
    LLAMA_70B,
    MAMBA_2_8B,
    MINIMAX_TEXT_01,
    MIXTRAL_8X7B,
    MXFP4,
    NEMOTRON_H_8B,
    QWEN3_5_27B,
    QWEN3_30B_A3B,
    QWEN3_NEXT_80B,
    Config,
)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """`token`: bytes of one more token in a long sequence, bf16, as vLLM's pool counts them."""

    config: Config
    architecture: str
    token: int
    weights: int | None = None
    nbytes: int | None = None
    source: str = "transformers' modules"


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
