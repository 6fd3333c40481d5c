"""Tiny random checkpoints that vLLM serves on a CPU: one token a byte, 0.7 million parameters."""

from pathlib import Path
from typing import Any

from tests.support.checkpoints import make_checkpoint

SHAPE: dict[str, Any] = {
    "head_dim": 32,  # vLLM's smallest on a CPU
    "hidden_size": 128,
    "intermediate_size": 256,
    "max_position_embeddings": 16384,
}
HYBRID = "gemma3"
"""Layers of full attention and of sliding windows in turn."""
WINDOW = 128


def tiny_model(folder: Path, architecture: str) -> Path:
    """Written into `folder`, which is returned. The same weights each time."""
    # vLLM takes a window for the layers of any architecture whose configuration names one.
    window: dict[str, Any] = {"sliding_window": WINDOW} if architecture == HYBRID else {}
    return make_checkpoint(folder, architecture, **SHAPE, **window)
