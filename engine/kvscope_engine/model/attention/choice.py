"""Chooses a model's attention backend, and explains why a requested one cannot run."""

import logging
import os
from importlib.util import find_spec
from shutil import which
from typing import Literal, NamedTuple

import torch

from kvscope_engine.config import AttentionName
from kvscope_engine.model.attention.backend import AttentionBackend, StaticBackend
from kvscope_engine.model.attention.cpu.backend import CpuAttention
from kvscope_engine.model.attention.cpu.compiler import CompileError, find_compiler
from kvscope_engine.model.attention.torch_backend import TorchAttention
from kvscope_engine.model.errors import first_line

logger = logging.getLogger(__name__)

_CAPABILITY = (8, 0)
"""Minimum compute capability that Triton compiles for."""
_FP8_CAPABILITY = (8, 9)
"""Minimum compute capability that converts e4m3."""


class Attention(NamedTuple):
    """A backend under its name."""

    name: Literal["torch", "triton", "cpu"]
    prepare: AttentionBackend
    prepare_static: StaticBackend | None = None
    """None: its steps cannot be captured in a CUDA graph."""

    @property
    def kernels(self) -> bool:
        """Whether other Triton kernels can run as well."""
        return self.name == "triton"


TORCH = Attention("torch", TorchAttention)
CPU = Attention("cpu", CpuAttention)


def choose_attention(
    wanted: AttentionName, device: torch.device, *, fp8: bool = False
) -> Attention:
    """auto: Triton on CUDA, the C kernel on a CPU; torch if that cannot run, which is logged.

    fp8: K and V are stored in 8 bits. Raises ValueError if the requested backend cannot run.
    """
    if wanted == "torch":
        return TORCH
    name = wanted
    if name == "auto":
        name = "triton" if device.type == "cuda" else "cpu"
    obstacle = _triton_obstacle(device, fp8) if name == "triton" else _cpu_obstacle(device, fp8)
    if obstacle is None:
        return _triton() if name == "triton" else CPU
    if wanted != "auto":
        raise ValueError(f"--attention-backend {wanted}: {obstacle}")
    level = logging.WARNING if device.type == "cuda" else logging.INFO
    logger.log(level, "attention is computed in plain torch: %s", obstacle)
    return TORCH


def _triton() -> Attention:
    from kvscope_engine.model.attention.triton.backend import static_attention, triton_attention

    return Attention("triton", triton_attention, static_attention)


def _cpu_obstacle(device: torch.device, fp8: bool) -> str | None:
    """The reason why the C kernel cannot run; None: no reason, provided it compiles."""
    if device.type != "cpu":
        return "the C kernel runs on a CPU, and the model is on a CUDA device"
    if fp8:
        return "the C kernel reads no fp8 KV"
    try:
        find_compiler()
    except CompileError as error:
        return str(error)
    return None


def _triton_obstacle(device: torch.device, fp8: bool) -> str | None:
    """The reason why the kernels cannot run; None: no reason."""
    if find_spec("triton") is None:
        return "Triton is not installed (pip install triton; Linux only)"
    try:
        import triton
    except ImportError as error:
        return f"Triton cannot be imported ({first_line(error)})"
    if device.type != "cuda":
        if triton.knobs.runtime.interpret:  # TRITON_INTERPRET=1: slow, for tests
            return None
        return "its kernels need a CUDA device, and the model is on the CPU"
    if "CC" not in os.environ and not which("gcc") and not which("clang"):
        return "Triton needs a C compiler (gcc or clang) to launch its kernels"
    capability = torch.cuda.get_device_capability(device)
    have = ".".join(map(str, capability))
    if capability < _CAPABILITY:
        return f"its kernels need compute capability 8.0, this device has {have}"
    if fp8 and capability < _FP8_CAPABILITY:
        return f"its kernels read fp8 KV from compute capability 8.9 on, this device has {have}"
    return None
