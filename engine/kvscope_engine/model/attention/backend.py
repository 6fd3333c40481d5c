"""The interface of attention backends: callables that prepare one step for all layers."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor

from kvscope_engine.model.kv_cache import KVCache
from kvscope_engine.model.step_batch import StepBatch


class LayerOptions(NamedTuple):
    """Options of one layer."""

    layer: int
    """Its number, and that of its KV tensors."""
    window: int | None
    """Keys that a token sees, itself included; None: all before it."""
    scaling: float | None
    """Factor of the scores; None: 1/√D."""
    softcap: float | None
    """Scores become softcap * tanh(scores / softcap); None: unchanged."""


class StepAttention(Protocol):
    """The attention of one step; the step's K and V are in the cache when a layer calls it."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, options: LayerOptions) -> Tensor:
        """Each token attends to its own sequence up to itself.

        query: (1, H, T, D), the flattened batch. key, value: (1, H_kv, T, D), what the step has
        written. Returns (T, H, D). Does not write the cache.
        """
        ...


StaticBackend = Callable[[KVCache, Tensor, Tensor, int], StepAttention]
"""Prepares all steps of B one-token rows, whose block tables and contexts are written later.

Takes tables (B, max_blocks) and contexts (B,), both int32, and the longest possible context. The
result can be captured in a CUDA graph: shapes and launches do not depend on contents.
"""

AttentionBackend = Callable[[StepBatch, KVCache], StepAttention]
"""Prepares a step: called once per step, before the first layer."""
