"""Tiny random checkpoints of models with several kinds of KV cache, as a real vLLM serves them.

    python -m tests.support.hybrid_checkpoints gemma3 DEST

They are laid out like the published models that they are named after, so that vLLM makes of them
the groups that it makes of those; the same seed gives the same weights. Our own engine runs none
of them but the first.
"""

import argparse
from pathlib import Path

import torch
from transformers import (
    DeepseekV2Config,
    Gemma3TextConfig,
    GptOssConfig,
    PreTrainedConfig,
    Qwen3NextConfig,
)
from transformers.models.auto import AutoModelForCausalLM

from kvscope_engine.model.demo import demo_tokenizer

WINDOW = 64
"""Tokens that a sliding layer sees: two of vLLM's smallest blocks on a CPU."""

_SLIDING, _FULL, _STATE = "sliding_attention", "full_attention", "linear_attention"
_EXPERTS: dict[str, object] = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}

_CONFIGS: dict[str, tuple[type[PreTrainedConfig], dict[str, object]]] = {
    # Two windows to one of full attention: three groups of two layers.
    "gemma3": (
        Gemma3TextConfig,
        {
            "num_hidden_layers": 6,
            "layer_types": [_SLIDING, _SLIDING, _FULL] * 2,
            "sliding_window": WINDOW,
            "tie_word_embeddings": False,
        },
    ),
    # One to one, with experts and attention sinks.
    "gpt_oss": (
        GptOssConfig,
        {
            "layer_types": [_SLIDING, _FULL] * 2,
            "sliding_window": WINDOW,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "rope_scaling": None,
        },
    ),
    # Gated delta nets; a state is as large as 64 tokens of the attention layers.
    "qwen3_next": (
        Qwen3NextConfig,
        {
            **_EXPERTS,
            "layer_types": [_STATE, _FULL] * 2,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "linear_num_key_heads": 1,
            "linear_num_value_heads": 1,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "num_experts": 4,
            "shared_expert_intermediate_size": 64,
        },
    ),
    # Latent attention: one group, whose layers keep a single latent a token.
    "deepseek_v2": (
        DeepseekV2Config,
        {
            **_EXPERTS,
            "num_key_value_heads": 4,
            "head_dim": 64,
            "q_lora_rank": None,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128,
            "v_head_dim": 128,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "topk_method": "greedy",
            "first_k_dense_replace": 1,
            "rope_scaling": None,
        },
    ),
}
HYBRIDS = tuple(_CONFIGS)


def make_hybrid(folder: Path, architecture: str, *, seed: int = 0) -> Path:
    """Write config, bfloat16 weights and tokenizer into `folder`, which is returned."""
    config_class, specific = _CONFIGS[architecture]
    settings: dict[str, object] = {
        "vocab_size": 259,  # bytes and three more
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,  # vLLM's smallest on a CPU
        "max_position_embeddings": 4096,
        "bos_token_id": 256,
        "eos_token_id": 257,
        "pad_token_id": 258,
        "initializer_range": 0.2,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = config_class(**(settings | specific))  # type: ignore[arg-type]  # as the checkpoint's own
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    demo_tokenizer().save_pretrained(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("architecture", choices=HYBRIDS)
    parser.add_argument("dest", type=Path)
    arguments = parser.parse_args()
    print(make_hybrid(arguments.dest, arguments.architecture))


if __name__ == "__main__":
    main()
