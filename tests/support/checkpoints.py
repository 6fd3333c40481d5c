"""Tiny random checkpoints on disk, one per architecture family, the same for the same seed.

    python -m tests.support.checkpoints llama DEST

Windows are 24 tokens, so that sequences of 60 and more leave them. Weights are spread wider than
transformers does: greedy choices then differ from token to token, and a wrong mask shows.
"""

import argparse
from pathlib import Path

import torch
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.auto import AutoModelForCausalLM

from kvscope_engine.model.demo import demo_tokenizer

WINDOW = 24
"""Tokens that a sliding layer sees, the current one included."""

_CONFIGS: dict[str, tuple[type[PreTrainedConfig], dict[str, object]]] = {
    "llama": (LlamaConfig, {}),
    "qwen2": (Qwen2Config, {}),
    "qwen3": (Qwen3Config, {}),
    "qwen3_moe": (
        Qwen3MoeConfig,
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
    ),
    "mistral": (MistralConfig, {"sliding_window": WINDOW}),
    "gemma2": (
        Gemma2Config,
        {
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 16,
            "tie_word_embeddings": False,  # tied, these repeat their last token for ever
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma3": (
        Gemma3TextConfig,
        {
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 16,
            "tie_word_embeddings": False,  # tied, these repeat their last token for ever
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    ),
}
ARCHITECTURES = tuple(_CONFIGS)


def sizes(folder: Path) -> tuple[int, int]:
    """Bytes of its tensors, and of the files that hold them."""
    files = [*folder.glob("*.safetensors")]
    size = sum(file.stat().st_size for file in files)
    headers = sum(8 + int.from_bytes(file.read_bytes()[:8], "little") for file in files)
    return size - headers, size


def make_config(architecture: str, **changes: object) -> PreTrainedConfig:
    """4 layers, 4 query and 2 KV heads of 16, 512 positions; the tokenizer's 259 tokens."""
    config_class, specific = _CONFIGS[architecture]
    settings: dict[str, object] = {
        "vocab_size": 259,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "bos_token_id": 256,
        "eos_token_id": 257,
        "pad_token_id": 258,
        "initializer_range": 0.2,
    }
    return config_class(**(settings | specific | changes))  # type: ignore[arg-type]


def make_checkpoint(
    folder: Path,
    architecture: str,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    max_shard_size: str = "1GB",
    **changes: object,
) -> Path:
    """Write config, safetensors and tokenizer into `folder`, about 0.1 s. Returns the folder.

    changes: settings of the configuration. Leaves torch's global generator as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = make_config(architecture, **changes)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    demo_tokenizer().save_pretrained(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("architecture", choices=ARCHITECTURES)
    parser.add_argument("dest", type=Path)
    arguments = parser.parse_args()
    print(make_checkpoint(arguments.dest, arguments.architecture))


if __name__ == "__main__":
    main()
