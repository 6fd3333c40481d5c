"""Paged attention in plain torch, as an attention implementation of transformers.

Importing this module registers `kvscope_paged`. A model loaded with it gets no masks (T² bytes
each) from transformers. The step's batch reaches the layers through a context variable: not every
architecture passes keywords of ours on to its layers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from engine.model.kv_cache import KVCache
from engine.model.metadata import DecodeGroup, PrefillPlan, StepBatch

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
_QUERIES_AT_ONCE = 512
"""Rows of scores that softcapping holds at once: bounds its memory on long prompts."""


class UnsupportedAttentionError(Exception):
    """A layer asks for attention that is not computed here."""


class PagedStep(NamedTuple):
    """Where the layers of one forward pass read and write."""

    cache: KVCache
    batch: StepBatch


_current_step: ContextVar[PagedStep] = ContextVar("kvscope_step")


@contextmanager
def paged_step(step: PagedStep) -> Iterator[None]:
    """Forward passes in here read and write `step`."""
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
    cache, batch = _current_step.get()
    layer = _checked_layer(module, key, value, cache)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is not None or dropout or not causal:
        raise UnsupportedAttentionError(
            f"{type(module).__name__} wants a mask, dropout or attention that is not causal"
        )
    for name, argument in others.items():
        if argument is not None and name not in _WITHOUT_EFFECT:
            raise UnsupportedAttentionError(
                f"{type(module).__name__} passes {name!r} to attention, which is not supported"
            )

    cache.write(layer, batch.slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    outputs: list[Tensor] = []  # (tokens, H, D) each, in the order of the flattened batch
    if batch.num_decodes:
        decode_query = query[0, :, : batch.num_decodes].transpose(0, 1)  # (B, H, D)
        outputs += [
            _decode(decode_query, cache, layer, group, scaling, softcap)
            for group in batch.decode_groups(sliding_window)
        ]
    if batch.spans:
        outputs += [
            _prefill(query, key, value, cache, layer, plan, scaling, softcap)
            for plan in batch.prefill_plans(sliding_window)
        ]
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return output.unsqueeze(0), None


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


def _decode(
    query: Tensor,
    cache: KVCache,
    layer: int,
    group: DecodeGroup,
    scaling: float | None,
    softcap: float | None,
) -> Tensor:
    """query: (B, H, D), all decode rows. Returns the group's (rows, H, D)."""
    rows = group.end - group.begin
    keys, values = (
        gathered.view(rows, -1, *gathered.shape[2:]).transpose(1, 2)  # (rows, H_kv, L, D)
        for gathered in cache.gather(layer, group.blocks)
    )
    # The query heads of one KV head see the same keys: to the kernel they are so many queries,
    # and K and V are read once for all of them.
    one_token = query[group.begin : group.end]
    grouped = one_token.reshape(rows, keys.shape[1], -1, keys.shape[3])  # (rows, H_kv, H / H_kv, D)
    return attend(grouped, keys, values, group.mask, scaling, softcap).flatten(1, 2)


def _prefill(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: KVCache,
    layer: int,
    plan: PrefillPlan,
    scaling: float | None,
    softcap: float | None,
) -> Tensor:
    """query, key, value: the flattened batch. Returns the span's (tokens, H, D)."""
    span = slice(plan.begin, plan.end)
    if plan.blocks is None:
        keys, values = key[:, :, span], value[:, :, span]
    else:
        keys, values = (
            gathered.flatten(0, 1)[: plan.num_keys].transpose(0, 1).unsqueeze(0)
            for gathered in cache.gather(layer, plan.blocks)
        )
    return attend(query[:, :, span], keys, values, plan.mask, scaling, softcap)[0].transpose(0, 1)


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    softcap: float | None,
) -> Tensor:
    """Grouped-query attention over dense K and V.

    query: (B, H, T, D). keys, values: (B, H_kv, L, D), H a multiple of H_kv. mask: added to the
    scores, broadcast to (B, H, T, L); None: causal, L == T. scaling None: 1/√D.
    Returns (B, H, T, D).
    """
    if softcap is None:
        return F.scaled_dot_product_attention(
            query,
            keys,
            values,
            attn_mask=mask,
            is_causal=mask is None,
            scale=scaling,
            enable_gqa=query.shape[1] != keys.shape[1],
        )
    if scaling is None:
        scaling = query.shape[3] ** -0.5
    return torch.cat(
        [
            _attend_softcapped(query, begin, keys, values, mask, scaling, softcap)
            for begin in range(0, query.shape[2], _QUERIES_AT_ONCE)
        ],
        dim=2,
    )


def _attend_softcapped(
    query: Tensor,
    begin: int,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scaling: float,
    softcap: float,
) -> Tensor:
    """`attend` for the queries from `begin` on, as many as are held at once."""
    num_kv_heads, num_keys = keys.shape[1:3]
    query = query[:, :, begin : begin + _QUERIES_AT_ONCE]
    count = query.shape[2]
    group = query.shape[1] // num_kv_heads
    scores = (query @ keys.repeat_interleave(group, dim=1).mT) * scaling  # (B, H, t, L)
    scores = (scores / softcap).tanh() * softcap
    if mask is not None:
        scores = scores + mask[:, :, begin : begin + count]
    else:
        key_index = torch.arange(num_keys, device=query.device)
        hidden = key_index > key_index[begin : begin + count, None]
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    return weights @ values.repeat_interleave(group, dim=1)


AttentionInterface.register(IMPLEMENTATION, paged_attention)
