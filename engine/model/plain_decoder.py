"""Llama and its nearest relatives without transformers' layers: the same sums, in half the calls.

A small model on a CPU spends more time between its operations than in them. Here Q, K and V are one
product, as are gate and up, and work common to all layers is done once. Every model goes through
transformers' own layers as well when it is loaded, and both must agree (`probe`).
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from engine.model.attention.backend import LayerOptions
from engine.model.attention.interface import PagedStep

_WINDOWS: dict[type[PreTrainedModel], Callable[[Any], int | None]] = {
    LlamaForCausalLM: lambda attention: None,
    MistralForCausalLM: lambda attention: attention.config.sliding_window,
    Qwen2ForCausalLM: lambda attention: attention.sliding_window,
    Qwen3ForCausalLM: lambda attention: attention.sliding_window,
}
"""The sliding window of an attention module, by model."""


class _Norm(NamedTuple):
    """x / √(mean of squares + epsilon) * weight."""

    weight: Tensor
    epsilon: float

    def __call__(self, hidden: Tensor) -> Tensor:
        return F.rms_norm(hidden, self.weight.shape, self.weight, self.epsilon)


class _Layer(NamedTuple):
    """The weights of one layer, C hidden and I intermediate elements. H query and H_kv KV heads."""

    options: LayerOptions
    attention_norm: _Norm
    qkv: Tensor
    """((H + 2 H_kv) * D, C)"""
    qkv_bias: Tensor | None
    head_norms: tuple[_Norm, _Norm] | None
    """Norms of the query heads and of the key heads, if the model has them."""
    output: Tensor
    """(H * D, C)"""
    mlp_norm: _Norm
    gate_up: Tensor
    """(2 I, C)"""
    activation: Callable[[Tensor], Tensor]
    down: Tensor
    """(I, C)"""


class PlainDecoder:
    """A `Forward` of one model. Its weights are those of the model, not copies."""

    def __init__(self, model: Any, window: Callable[[Any], int | None]) -> None:
        inner = model.model
        attention = inner.layers[0].self_attn
        self._head_dim: int = attention.head_dim
        self._num_heads: int = attention.q_proj.out_features // self._head_dim
        self._num_kv_heads: int = attention.k_proj.out_features // self._head_dim
        self._embedding: Tensor = inner.embed_tokens.weight
        self._rotary = inner.rotary_emb
        self._layers = [_layer(layer, window) for layer in inner.layers]
        self._norm = _norm(inner.norm)
        self._head: Tensor = model.lm_head.weight

    def __call__(self, step: PagedStep) -> Tensor:
        """(S + P, V): as in `StepBatch`. Writes the cache."""
        cache, batch, attention = step
        hidden = F.embedding(batch.token_ids, self._embedding)  # (T, C)
        cos, sin = self._angles(hidden, batch.positions)
        for number, layer in enumerate(self._layers):
            projected = F.linear(layer.attention_norm(hidden), layer.qkv, layer.qkv_bias)
            query, key, value = self._heads(projected, layer, cos, sin)
            cache.write(number, batch.slots, key, value)
            attended = attention.attend(
                query.transpose(0, 1)[None],
                key.transpose(0, 1)[None],
                value.transpose(0, 1)[None],
                layer.options,
            )
            hidden = torch.addmm(hidden, attended.flatten(1), layer.output)
            gate, up = F.linear(layer.mlp_norm(hidden), layer.gate_up).chunk(2, dim=-1)
            hidden = torch.addmm(hidden, layer.activation(gate) * up, layer.down)
        return F.linear(self._norm(hidden.index_select(0, batch.logit_positions)), self._head)

    def _angles(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(T, 1, D) each; the first half of the sines has the sign that rotation gives it."""
        cos, sin = self._rotary(hidden, positions[None])
        lower, upper = sin[0].chunk(2, dim=-1)
        return cos[0, :, None], torch.cat((-lower, upper), dim=-1)[:, None]

    def _heads(
        self, projected: Tensor, layer: _Layer, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries (T, H, D) and keys (T, H_kv, D), and the values."""
        num_heads, num_rotated = self._num_heads, self._num_heads + self._num_kv_heads
        heads = projected.view(len(projected), -1, self._head_dim)
        rotated = heads[:, :num_rotated]
        if layer.head_norms is not None:
            query_norm, key_norm = layer.head_norms
            queries, keys = query_norm(heads[:, :num_heads]), key_norm(rotated[:, num_heads:])
            rotated = torch.cat((queries, keys), dim=1)
        swapped = rotated.roll(self._head_dim // 2, dims=-1)
        rotated = rotated * cos + swapped * sin
        return rotated[:, :num_heads], rotated[:, num_heads:], heads[:, num_rotated:]


def plain_decoder(model: PreTrainedModel) -> PlainDecoder | None:
    """The fast path through a model, or None.

    Only in float32, where transformers' norms round as torch's own, and on a CPU, where it pays.
    Places weights that are multiplied together side by side.
    """
    window = _WINDOWS.get(type(model))
    if window is None or model.device.type != "cpu":
        return None
    if any(parameter.dtype != torch.float32 for parameter in model.parameters()):
        return None
    whole: Any = model
    if not all(_is_plain(layer) for layer in whole.model.layers) or whole.lm_head.bias is not None:
        return None
    with torch.no_grad():
        return PlainDecoder(model, window)


def _is_plain(layer: Any) -> bool:
    """Whether a layer is not quantized and has no bias where none is added here."""
    attention, mlp = layer.self_attn, layer.mlp
    unbiased = [attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    projections = [attention.q_proj, attention.k_proj, attention.v_proj, *unbiased]
    return all(type(linear) is nn.Linear for linear in projections) and all(
        linear.bias is None for linear in unbiased
    )


def _layer(layer: Any, window: Callable[[Any], int | None]) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    qkv = [attention.q_proj, attention.k_proj, attention.v_proj]
    biased = attention.q_proj.bias is not None
    normed = hasattr(attention, "q_norm")
    return _Layer(
        options=LayerOptions(attention.layer_idx, window(attention), attention.scaling, None),
        attention_norm=_norm(layer.input_layernorm),
        qkv=_joined([linear.weight for linear in qkv]),
        qkv_bias=_joined([linear.bias for linear in qkv]) if biased else None,
        head_norms=(_norm(attention.q_norm), _norm(attention.k_norm)) if normed else None,
        output=attention.o_proj.weight.t(),
        mlp_norm=_norm(layer.post_attention_layernorm),
        gate_up=_joined([mlp.gate_proj.weight, mlp.up_proj.weight]),
        activation=mlp.act_fn,
        down=mlp.down_proj.weight.t(),
    )


def _norm(module: Any) -> _Norm:
    return _Norm(module.weight, module.variance_epsilon)


def _joined(parameters: list[nn.Parameter]) -> Tensor:
    """The parameters one below the other. They become views of it, unless they are already."""
    parts = [parameter.data for parameter in parameters]
    if _side_by_side(parts):
        rows = sum(len(part) for part in parts)
        return parts[0].as_strided((rows, *parts[0].shape[1:]), parts[0].stride())
    joined = torch.cat(parts)
    end = 0
    for parameter in parameters:
        begin, end = end, end + len(parameter)
        parameter.data = joined[begin:end]
    return joined


def _side_by_side(parts: list[Tensor]) -> bool:
    """Whether each lies right behind the one before, in one piece of memory."""
    return len({part.untyped_storage().data_ptr() for part in parts}) == 1 and all(
        before.is_contiguous() and before.data_ptr() + before.nbytes == part.data_ptr()
        for before, part in pairwise(parts)
    )
