"""config.json of real checkpoints, as far as memory depends on it; field by field their own."""

import json
from pathlib import Path
from typing import Any

Config = dict[str, Any]

_READ: dict[str, Config] = json.loads(Path(__file__).with_name("configs.json").read_text())
LLAMA_2_7B = _READ["LLAMA_2_7B"]
LLAMA_3_8B = _READ["LLAMA_3_8B"]
QWEN3_8B = _READ["QWEN3_8B"]
QWEN3_30B_A3B = _READ["QWEN3_30B_A3B"]
MIXTRAL_8X7B = _READ["MIXTRAL_8X7B"]
GEMMA_3_4B = _READ["GEMMA_3_4B"]
DEEPSEEK_V2_LITE = _READ["DEEPSEEK_V2_LITE"]
GPT_OSS_20B = _READ["GPT_OSS_20B"]
QWEN3_NEXT_80B = _READ["QWEN3_NEXT_80B"]
GEMMA_4_31B = _READ["GEMMA_4_31B"]
GEMMA_4_26B_A4B = _READ["GEMMA_4_26B_A4B"]
GEMMA_4_E4B = _READ["GEMMA_4_E4B"]
GEMMA_4_E2B = _READ["GEMMA_4_E2B"]
LLAMA_70B = _READ["LLAMA_70B"]
AWQ = _READ["AWQ"]
MXFP4 = _READ["MXFP4"]
GPT_OSS_120B = _READ["GPT_OSS_120B"]
DEEPSEEK_V3 = _READ["DEEPSEEK_V3"]
GEMMA_3_27B = _READ["GEMMA_3_27B"]
QWEN3_5_27B = _READ["QWEN3_5_27B"]
NEMOTRON_H_8B = _READ["NEMOTRON_H_8B"]
MINIMAX_TEXT_01 = _READ["MINIMAX_TEXT_01"]
KIMI_LINEAR_48B = _READ["KIMI_LINEAR_48B"]
FALCON_H1_7B = _READ["FALCON_H1_7B"]
JAMBA = _READ["JAMBA"]
GRANITE_4_H_SMALL = _READ["GRANITE_4_H_SMALL"]
BAMBA_9B = _READ["BAMBA_9B"]
MAMBA_2_8B = _READ["MAMBA_2_8B"]
CODESTRAL_MAMBA_7B = _READ["CODESTRAL_MAMBA_7B"]
LLAMA_4_SCOUT = _READ["LLAMA_4_SCOUT"]
GLM_4_5_AIR = _READ["GLM_4_5_AIR"]

REAL = {
    "Llama-2-7B": LLAMA_2_7B,
    "Llama-3-8B": LLAMA_3_8B,
    "Qwen3-8B": QWEN3_8B,
    "Gemma-3-4B": GEMMA_3_4B,
    "DeepSeek-V2-Lite": DEEPSEEK_V2_LITE,
}
"""Those that are in no list of published sizes."""
