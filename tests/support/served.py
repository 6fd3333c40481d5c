"""The engine's default way of computing steps, for tests that put one together themselves."""

import torch

from kvscope_engine.config import AttentionName
from kvscope_engine.model.attention.choice import choose_attention
from kvscope_engine.model.execution import Execution


def served_execution(device: torch.device, backend: AttentionName = "auto") -> Execution:
    """The attention backend of that name, or the one that a device gets; without CUDA graphs."""
    return Execution(attention=choose_attention(backend, device).prepare)
