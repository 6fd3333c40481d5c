"""Paged attention as an attention implementation of transformers, over any backend.

Importing this module registers `kvscope_paged`. A model loaded with it gets no masks (T² bytes
each) from transformers. The step reaches the layers through a context variable: not every
architecture passes our keywords on to its layers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from torch import Tensor, nn
from transformers import AttentionInterface

from kvscope_engine.model.attention.backend import LayerOptions, StepAttention
from kvscope_engine.model.kv_cache import KVCache
from kvscope_engine.model.step_batch import ForwardBatch

IMPLEMENTATION = "kvscope_paged"

_WITHOUT_EFFECT = frozenset(
    {
        "cache_position",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",
        "return_dict",
        "use_cache",
    }
)


class UnsupportedAttentionError(Exception):
    """A layer requires attention that is not computed here."""


class PagedStep(NamedTuple):
    """The cache and batch that the layers of one forward pass read and write."""

    cache: KVCache
    batch: ForwardBatch
    attention: StepAttention
    """The backend's part, prepared for this cache and batch."""


_current_step: ContextVar[PagedStep] = ContextVar("kvscope_step")


@contextmanager
def paged_step(step: PagedStep) -> Iterator[None]:
    """Forward passes inside the block read and write `step`."""
    token = _current_step.set(step)
    try:
        yield
    finally:
        _current_step.reset(token)


def paged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    **others: object,
) -> tuple[Tensor, None]:
    """Write the T tokens' K and V to their slots, then let each attend to its own sequence.

    query: (1, H, T, D). key, value: (1, H_kv, T, D), rotated. sliding_window: keys visible to a
    token, itself included. softcap: scores become softcap * tanh(scores / softcap).
    Returns (1, T, H, D). Signature: transformers' attention interface.

    Raises UnsupportedAttentionError for anything else that would change the result.
    """
    cache, batch, attention = _current_step.get()
    layer = _checked_layer(module, key, value, cache)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is not None or dropout or not causal:
        raise UnsupportedAttentionError(
            f"{type(module).__name__} asks for a mask, dropout or attention that is not causal"
        )
    for name, argument in others.items():
        if argument is not None and name not in _WITHOUT_EFFECT:
            raise UnsupportedAttentionError(
                f"{type(module).__name__} passes {name!r} to attention, which is not supported"
            )

    cache.write(layer, batch.slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    options = LayerOptions(layer, sliding_window, scaling, softcap)
    return attention.attend(query, key, value, options).unsqueeze(0), None


def _checked_layer(module: nn.Module, key: Tensor, value: Tensor, cache: KVCache) -> int:
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int) or not 0 <= layer < len(cache.layers):
        raise UnsupportedAttentionError(f"{type(module).__name__} has no layer number in range")
    expected = cache.layout.layers[layer]
    for tensor in (key, value):
        if (tensor.shape[1], tensor.shape[3]) != expected:
            raise UnsupportedAttentionError(
                f"{type(module).__name__} of layer {layer} has K of {tuple(key.shape[1::2])} and "
                f"V of {tuple(value.shape[1::2])} heads and elements, expected {tuple(expected)}"
            )
    return layer


AttentionInterface.register(IMPLEMENTATION, paged_attention)
