"""Computation of a model's steps: attention, type of the KV, fixed sizes, CPU threads."""

import os
from dataclasses import dataclass, replace

import torch

from kvscope_engine.config import EngineConfig, SchedulerConfig
from kvscope_engine.model.attention.backend import AttentionBackend
from kvscope_engine.model.attention.choice import Attention
from kvscope_engine.model.attention.torch_backend import TorchAttention
from kvscope_engine.model.graphs import StaticDecoding
from kvscope_engine.model.kv_cache import FP8


def leave_a_core() -> None:
    """Keep one core from torch, for the step loop, the server and the folds.

    torch's threads wait for each other by spinning: with one too many, each step waits for the
    thread that holds that core. If OMP_NUM_THREADS is set, the operator has decided.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Settings of a runner that do not affect its size."""

    attention: AttentionBackend = TorchAttention
    stored: torch.dtype | None = None
    """Type of K and V; None: the model's."""
    static: StaticDecoding | None = None
    """Decode steps of fixed sizes; None: all steps are as large as their rows."""
    kernels: bool = False
    """Whether layers run with Triton kernels, besides attention."""

    def without_static(self) -> "Execution":
        return replace(self, static=None)


def stored_dtype(config: EngineConfig) -> torch.dtype | None:
    """The type given by --kv-cache-dtype; None: the model's."""
    return FP8 if config.cache.kv_cache_dtype == "fp8" else None


def execution_of(
    config: EngineConfig, scheduler: SchedulerConfig, attention: Attention
) -> Execution:
    """The execution for these settings, with the chosen backend."""
    static = None
    if attention.prepare_static is not None and not config.model.enforce_eager:
        static = StaticDecoding(
            attention=attention.prepare_static,
            max_num_seqs=scheduler.max_num_seqs,
            max_model_len=scheduler.max_model_len,
        )
    return Execution(
        attention=attention.prepare,
        stored=stored_dtype(config),
        static=static,
        kernels=attention.kernels,
    )
