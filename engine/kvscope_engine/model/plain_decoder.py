"""Llama and its nearest relatives without transformers' layers: the same sums, in half the calls.

A small model on a CPU, and a decode step on a GPU, spend more time between their products than in
them. Here Q, K and V are one product, as are gate and up, and work common to all layers is done
once. Every model goes through transformers' own layers as well when it is loaded, and both must
agree (`probe`).
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

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

from kvscope_engine.model.attention.backend import LayerOptions
from kvscope_engine.model.attention.interface import PagedStep

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


class Operations(Protocol):
    """A layer's work between its products."""

    def normed(self, hidden: Tensor, norm: _Norm) -> Tensor:
        """hidden: (T, C)."""

    def write_heads(
        self, projected: Tensor, layer: _Layer, angles: tuple[Tensor, Tensor], step: PagedStep
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Norm and rotate the heads of (T, (H + 2 H_kv) * D), and write K and V to their slots.

        angles: cos and sin, (T, 1, D) each; the first half of the sines has the sign that rotation
        gives it. Returns queries (T, H, D), keys and values (T, H_kv, D).
        """

    def gated(self, projected: Tensor, layer: _Layer) -> Tensor:
        """The activated first half of each row times the second. (T, 2 I) to (T, I)."""


class _TorchOperations:
    """`Operations` of torch's."""

    def normed(self, hidden: Tensor, norm: _Norm) -> Tensor:
        return F.rms_norm(hidden, norm.weight.shape, norm.weight, norm.epsilon)

    def write_heads(
        self, projected: Tensor, layer: _Layer, angles: tuple[Tensor, Tensor], step: PagedStep
    ) -> tuple[Tensor, Tensor, Tensor]:
        num_kv_heads, head_dim = step.cache.layout.layers[layer.options.layer]
        heads = projected.view(len(projected), -1, head_dim)
        turning = heads.shape[1] - num_kv_heads
        num_heads = turning - num_kv_heads
        rotated = heads[:, :turning]
        if layer.head_norms is not None:
            query_norm, key_norm = layer.head_norms
            queries = self.normed(heads[:, :num_heads], query_norm)
            keys = self.normed(rotated[:, num_heads:], key_norm)
            rotated = torch.cat((queries, keys), dim=1)
        cos, sin = angles
        swapped = rotated.roll(head_dim // 2, dims=-1)
        rotated = rotated * cos + swapped * sin
        keys, values = rotated[:, num_heads:], heads[:, turning:]
        step.cache.write(layer.options.layer, step.batch.slots, keys, values)
        return rotated[:, :num_heads], keys, values

    def gated(self, projected: Tensor, layer: _Layer) -> Tensor:
        gate, up = projected.chunk(2, dim=-1)
        return layer.activation(gate) * up


class _KernelOperations:
    """`Operations` of one Triton kernel each."""

    def __init__(self) -> None:
        from kvscope_engine.model import decoder_kernels

        self._kernels = decoder_kernels

    def normed(self, hidden: Tensor, norm: _Norm) -> Tensor:
        return self._kernels.rms_normed(hidden, norm.weight, norm.epsilon)

    def write_heads(
        self, projected: Tensor, layer: _Layer, angles: tuple[Tensor, Tensor], step: PagedStep
    ) -> tuple[Tensor, Tensor, Tensor]:
        norms = None
        if layer.head_norms is not None:
            query, key = layer.head_norms
            norms = (query.weight, key.weight, query.epsilon)
        number = layer.options.layer
        return self._kernels.write_heads(
            projected, norms, angles, step.cache, number, step.batch.slots
        )

    def gated(self, projected: Tensor, layer: _Layer) -> Tensor:
        return self._kernels.silu_gated(projected)


class PlainDecoder:
    """A `Forward` of one model. Its weights are those of the model, not copies."""

    def __init__(
        self, model: Any, window: Callable[[Any], int | None], operations: Operations
    ) -> None:
        inner = model.model
        self._embedding: Tensor = inner.embed_tokens.weight
        self._rotary = inner.rotary_emb
        self._layers = [_layer(layer, window) for layer in inner.layers]
        self._norm = _norm(inner.norm)
        self._head: Tensor = model.lm_head.weight
        self._operations = operations

    def __call__(self, step: PagedStep) -> Tensor:
        """(S + P, V): as in `StepBatch`. Writes the cache."""
        batch, operations = step.batch, self._operations
        hidden = F.embedding(batch.token_ids, self._embedding)  # (T, C)
        angles = self._angles(hidden, batch.positions)
        for layer in self._layers:
            normed = operations.normed(hidden, layer.attention_norm)
            projected = F.linear(normed, layer.qkv, layer.qkv_bias)
            heads = operations.write_heads(projected, layer, angles, step)
            query, key, value = (part.transpose(0, 1)[None] for part in heads)
            attended = step.attention.attend(query, key, value, layer.options)
            hidden.addmm_(attended.flatten(1), layer.output)
            gate_and_up = F.linear(operations.normed(hidden, layer.mlp_norm), layer.gate_up)
            hidden.addmm_(operations.gated(gate_and_up, layer), layer.down)
        last = hidden.index_select(0, batch.logit_positions)
        return F.linear(operations.normed(last, self._norm), self._head)

    def _angles(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """See `Operations.write_heads`."""
        cos, sin = self._rotary(hidden, positions[None])
        lower, upper = sin[0].chunk(2, dim=-1)
        return cos[0, :, None], torch.cat((-lower, upper), dim=-1)[:, None]


def plain_decoder(model: PreTrainedModel, *, kernels: bool = False) -> PlainDecoder | None:
    """The fast path through a model, or None. kernels: whether Triton runs here.

    Without Triton only in float32, where transformers' norms round as torch's own, and on a CPU,
    where it pays. Places weights that are multiplied together side by side.
    """
    window = _WINDOWS.get(type(model))
    types = {parameter.dtype for parameter in model.parameters()}
    quantized = getattr(model.config, "quantization_config", None) is not None
    if window is None or len(types) != 1 or quantized:
        return None
    if kernels:
        if model.config.hidden_act != "silu":
            return None
    elif model.device.type != "cpu" or types != {torch.float32}:
        return None
    whole: Any = model
    if not all(_is_plain(layer) for layer in whole.model.layers) or whole.lm_head.bias is not None:
        return None
    with torch.no_grad():
        return PlainDecoder(model, window, _KernelOperations() if kernels else _TorchOperations())


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
    if joined.is_cuda:
        del parts
        torch.cuda.empty_cache()  # each joined tensor is larger than the gaps that its parts leave
    return joined


def _side_by_side(parts: list[Tensor]) -> bool:
    """Whether each lies right behind the one before, in one piece of memory."""
    return len({part.untyped_storage().data_ptr() for part in parts}) == 1 and all(
        before.is_contiguous() and before.data_ptr() + before.nbytes == part.data_ptr()
        for before, part in pairwise(parts)
    )
