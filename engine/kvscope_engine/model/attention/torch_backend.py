"""Paged attention in plain torch, on a CPU or a GPU: gather a sequence's blocks, then attend."""

import torch
import torch.nn.functional as F
from torch import Tensor

from kvscope_engine.model.attention.backend import LayerOptions
from kvscope_engine.model.attention.torch_plan import DecodeGroup, PrefillPlan, TorchPlan
from kvscope_engine.model.kv_cache import KVCache
from kvscope_engine.model.step_batch import StepBatch

_QUERIES_AT_ONCE = 512
"""Rows of scores that softcapping holds at once: bounds its memory on long prompts."""


class TorchAttention:
    """An `AttentionBackend`: the attention of one step."""

    def __init__(self, batch: StepBatch, cache: KVCache) -> None:
        self._num_decodes = len(batch.decodes)
        self._has_spans = bool(batch.spans)
        self._plan = TorchPlan(batch)
        self._cache = cache

    def attend(self, query: Tensor, key: Tensor, value: Tensor, options: LayerOptions) -> Tensor:
        """See `StepAttention`."""
        outputs: list[Tensor] = []  # (tokens, H, D) each, in the order of the flattened batch
        if self._num_decodes:
            outputs += self.decode(query, options)
        if self._has_spans:
            outputs += [
                _prefill(query, key, value, self._cache, plan, options)
                for plan in self._plan.prefill_plans(options.window)
            ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def decode(self, query: Tensor, options: LayerOptions) -> list[Tensor]:
        """The outputs of the decode rows, in order: one (rows, H, D) for each group of them."""
        decode_query = query[0, :, : self._num_decodes].transpose(0, 1)  # (B, H, D)
        return [
            _decode(decode_query, self._cache, group, options)
            for group in self._plan.decode_groups(options.window)
        ]


def _decode(
    query: Tensor,
    cache: KVCache,
    group: DecodeGroup,
    options: LayerOptions,
) -> Tensor:
    """query: (B, H, D), all decode rows. Returns the group's (rows, H, D)."""
    rows = group.end - group.begin
    keys, values = (
        gathered.view(rows, -1, *gathered.shape[2:]).transpose(1, 2)  # (rows, H_kv, L, D)
        for gathered in cache.gather(options.layer, group.blocks)
    )
    # The query heads of one KV head see the same keys: to the kernel they are several queries, and
    # K and V are read once for all of them.
    one_token = query[group.begin : group.end]
    grouped = one_token.reshape(rows, keys.shape[1], -1, keys.shape[3])  # (rows, H_kv, H / H_kv, D)
    return attend(grouped, keys, values, group.mask, options.scaling, options.softcap).flatten(1, 2)


def _prefill(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: KVCache,
    plan: PrefillPlan,
    options: LayerOptions,
) -> Tensor:
    """query, key, value: the flattened batch. Returns the span's (tokens, H, D)."""
    span = slice(plan.begin, plan.end)
    if plan.blocks is None:
        keys, values = key[:, :, span], value[:, :, span]
    else:
        keys, values = (
            gathered.flatten(0, 1)[: plan.num_keys].transpose(0, 1).unsqueeze(0)
            for gathered in cache.gather(options.layer, plan.blocks)
        )
    return attend(query[:, :, span], keys, values, plan.mask, options.scaling, options.softcap)[
        0
    ].transpose(0, 1)


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
