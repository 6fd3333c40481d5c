"""Tiny random LoRA adapters for the tiny models: what each multiplies differs, so answers do."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

RANK = 8
_PROJECTIONS = ("q_proj", "v_proj")


def lora_adapter(folder: Path, model: Path, seed: int) -> Path:
    """An adapter of the model's attention written into `folder`, which is returned."""
    folder.mkdir()
    configuration = json.loads((model / "config.json").read_text())
    hidden, head = configuration["hidden_size"], configuration["head_dim"]
    out = {
        "q_proj": configuration["num_attention_heads"] * head,
        "v_proj": configuration["num_key_value_heads"] * head,
    }
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(configuration["num_hidden_layers"]):
        for projection in _PROJECTIONS:
            name = f"base_model.model.model.layers.{layer}.self_attn.{projection}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, hidden, generator=random)
            tensors[f"{name}.lora_B.weight"] = torch.randn(out[projection], RANK, generator=random)
    save_file(tensors, folder / "adapter_model.safetensors")
    described = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "bias": "none"}
    described["target_modules"] = list(_PROJECTIONS)
    (folder / "adapter_config.json").write_text(json.dumps(described))
    return folder
