"""How the engine computes steps by default, for tests that put one together themselves."""

import torch

from engine.model.attention.choice import choose_attention
from engine.model.execution import Execution


def served_execution(device: torch.device) -> Execution:
    """The attention backend that `auto` takes on a device; without CUDA graphs."""
    return Execution(attention=choose_attention("auto", device).prepare)
