"""Paged attention in Triton: a step's plan and its launches, without gathering or waiting."""

import torch
from torch import Tensor

from kvscope_engine.model.attention.backend import LayerOptions
from kvscope_engine.model.attention.triton.decode import paged_decode
from kvscope_engine.model.attention.triton.launch import paged_layer
from kvscope_engine.model.attention.triton.plan import DecodePlan, PrefillTiles, step_plan
from kvscope_engine.model.attention.triton.prefill import paged_prefill
from kvscope_engine.model.kv_cache import KVCache
from kvscope_engine.model.step_batch import StepBatch


class TritonAttention:
    """The attention of one step: `decode` for the batch's leading rows, `tiles` for the others."""

    def __init__(
        self, cache: KVCache, decode: DecodePlan | None, tiles: PrefillTiles | None
    ) -> None:
        self._cache = cache
        self._decode = decode
        self._tiles = tiles

    def attend(self, query: Tensor, key: Tensor, value: Tensor, options: LayerOptions) -> Tensor:
        """See `StepAttention`. K and V are read from their blocks, the step's own as well."""
        tokens = query[0].transpose(0, 1)  # (T, H, D)
        if tokens.stride(2) != 1:
            tokens = tokens.contiguous()
        output = torch.empty(tokens.shape, dtype=tokens.dtype, device=tokens.device)
        layer = paged_layer(self._cache, options)
        if self._decode is not None:
            rows = self._decode.contexts.shape[0]
            splitting = self._decode.splitting(layer.keys.shape[2], options.window)
            tables, contexts = self._decode.tables, self._decode.contexts
            paged_decode(tokens[:rows], output[:rows], layer, tables, contexts, splitting)
        if self._tiles is not None:
            paged_prefill(tokens, output, layer, self._tiles)
        return output


def triton_attention(batch: StepBatch, cache: KVCache) -> TritonAttention:
    """An `AttentionBackend`."""
    return TritonAttention(cache, *step_plan(batch))


def static_attention(
    cache: KVCache, tables: Tensor, contexts: Tensor, longest: int
) -> TritonAttention:
    """A `StaticBackend`."""
    return TritonAttention(cache, DecodePlan(tables, contexts, longest), None)
