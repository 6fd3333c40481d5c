"""Which attention backend a model gets, and why one that was asked for cannot run."""

import logging
from importlib.util import find_spec
from typing import Literal, NamedTuple

import torch

from engine.config import AttentionName
from engine.model.attention.backend import AttentionBackend, StaticBackend
from engine.model.attention.torch_backend import TorchAttention
from engine.model.errors import first_line

logger = logging.getLogger(__name__)

_CAPABILITY = (8, 0)
"""Of devices that Triton compiles for."""
_FP8_CAPABILITY = (8, 9)
"""Of devices that convert e4m3."""


class Attention(NamedTuple):
    """A backend under its name."""

    name: Literal["torch", "triton"]
    prepare: AttentionBackend
    prepare_static: StaticBackend | None = None
    """None: its steps cannot be captured in a CUDA graph."""


TORCH = Attention("torch", TorchAttention)


def choose_attention(
    wanted: AttentionName, device: torch.device, *, fp8: bool = False
) -> Attention:
    """auto: Triton on CUDA, torch elsewhere. fp8: K and V are stored in 8 bits.

    Raises ValueError where Triton is wanted and cannot run.
    """
    if wanted == "torch" or (wanted == "auto" and device.type != "cuda"):
        return TORCH
    obstacle = _obstacle(device, fp8)
    if obstacle is None:
        from engine.model.attention.triton.backend import static_attention, triton_attention

        return Attention("triton", triton_attention, static_attention)
    if wanted == "triton":
        raise ValueError(f"--attention-backend triton: {obstacle}")
    logger.warning("attention is computed in plain torch: %s", obstacle)
    return TORCH


def _obstacle(device: torch.device, fp8: bool) -> str | None:
    """What keeps the kernels from running; None: nothing."""
    if find_spec("triton") is None:
        return "Triton is not installed (pip install triton; there is none but for Linux)"
    try:
        import triton
    except ImportError as error:
        return f"Triton cannot be imported ({first_line(error)})"
    if device.type != "cuda":
        if triton.knobs.runtime.interpret:  # TRITON_INTERPRET=1: slow, for tests
            return None
        return "its kernels need a CUDA device, and the model is on the CPU"
    capability = torch.cuda.get_device_capability(device)
    have = ".".join(map(str, capability))
    if capability < _CAPABILITY:
        return f"its kernels need compute capability 8.0, this device has {have}"
    if fp8 and capability < _FP8_CAPABILITY:
        return f"its kernels read fp8 KV from compute capability 8.9 on, this device has {have}"
    return None
