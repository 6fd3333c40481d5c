"""The weights of attention and of what stands in its place, from the configuration."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from kvscope.plan.families import Family, StateKind
from kvscope.plan.layers import (
    delta_net_heads,
    delta_net_keys,
    kda_shape,
    mamba2_shape,
    mamba_inner,
    mamba_kernel,
    mamba_width,
)
from kvscope.plan.layouts import Layer, MixerKind
from kvscope.plan.weights import Matrix, Part, Split
from kvscope_engine.sizing.config_json import Fields
from kvscope_engine.sizing.heads import head_dim, num_heads


def mixer(fields: Fields, family: Family, kind: MixerKind, layer: Layer, hidden: int) -> Part:
    """Raises ConfigError if fields are missing."""
    if kind == "latent":
        return _latent_attention(fields, layer, hidden)
    if kind != "state":
        return _attention(fields, family, kind, layer, hidden)
    assert family.state is not None
    return _STATES[family.state](fields, family, hidden)


def _flag(fields: Fields, name: bool | str) -> bool:
    return fields.flag(name) if isinstance(name, str) else name


def _attention(fields: Fields, family: Family, kind: MixerKind, layer: Layer, hidden: int) -> Part:
    size, heads, kv_heads = layer.head_dim, num_heads(fields), layer.kv_heads
    query, key = heads * size, kv_heads * size
    gated = 2 if family.gated_query and not fields.is_off("attn_output_gate") else 1
    projected = ["k_proj", "v_proj"]
    if layer.reuses:
        projected = []
    elif kind == "full" and fields.flag("attention_k_eq_v"):  # K is projected, and taken for V
        projected = ["k_proj"]
    said = fields.flag("attention_bias")
    vectors = 0
    if said if family.qkv_bias is None else family.qkv_bias:
        vectors += gated * query + len(projected) * key
    if said if family.output_bias is None else family.output_bias:
        vectors += hidden
    if _flag(fields, family.head_norms):
        vectors += size if layer.reuses else 2 * size
    if family.sinks:
        vectors += heads

    def projection(name: str, rows: int, kv_heads: int = 0) -> Matrix:
        return Matrix(module=f"self_attn.{name}", rows=rows, columns=hidden, kv_heads=kv_heads)

    return Part(
        (
            projection("q_proj", gated * query),
            *(projection(name, key, kv_heads) for name in projected),
            _output("self_attn.o_proj", hidden, query),
        ),
        vectors,
    )


def _output(module: str, hidden: int, inner: int) -> Matrix:
    return Matrix(module=module, rows=hidden, columns=inner, split=Split.COLUMNS)


def _latent_attention(fields: Fields, layer: Layer, hidden: int) -> Part:
    """DeepSeek's attention: K and V, and mostly Q, pass through a narrow latent vector."""
    heads = num_heads(fields)
    rope, nope = fields.integer("qk_rope_head_dim"), fields.integer("qk_nope_head_dim")
    value, rank = fields.integer("v_head_dim"), fields.integer("kv_lora_rank")
    query_rank = fields.optional_integer("q_lora_rank")
    query = heads * (nope + rope)

    def whole(name: str, rows: int) -> Matrix:
        return Matrix(module=f"self_attn.{name}", rows=rows, columns=hidden, split=Split.NONE)

    matrices = [
        whole("kv_a_proj_with_mqa", rank + rope),
        Matrix(module="self_attn.kv_b_proj", rows=heads * (nope + value), columns=rank),
        _output("self_attn.o_proj", hidden, heads * value),
    ]
    vectors, biased = rank, rank + rope + hidden
    if query_rank:
        matrices.append(whole("q_a_proj", query_rank))
        matrices.append(Matrix(module="self_attn.q_b_proj", rows=query, columns=query_rank))
        vectors += query_rank
        biased += query_rank
    else:
        matrices.append(Matrix(module="self_attn.q_proj", rows=query, columns=hidden))
    if fields.flag("mla_use_output_gate"):
        matrices.append(Matrix(module="self_attn.g_proj", rows=heads * value, columns=hidden))
    if layer.indexed:
        index = fields.integer("index_head_dim")
        chosen = fields.integer("index_n_heads")
        matrices += [
            whole("indexer.wk", index),
            whole("indexer.weights_proj", chosen),
            replace(whole("indexer.wq_b", chosen * index), columns=query_rank or hidden),
        ]
        vectors += 2 * index
    return Part(tuple(matrices), vectors + (biased if fields.flag("attention_bias") else 0))


def _delta_net(fields: Fields, family: Family, hidden: int) -> Part:
    """Qwen3-Next's linear attention: projections, a short convolution, decay and gate."""
    heads, size = delta_net_heads(fields), fields.integer("linear_value_head_dim")
    value, key = heads * size, delta_net_keys(fields)
    convolution = (2 * key + value) * fields.integer("linear_conv_kernel_dim")
    return Part(
        (
            Matrix(module="linear_attn.in_proj_qkvz", rows=2 * key + 2 * value, columns=hidden),
            Matrix(module="linear_attn.in_proj_ba", rows=2 * heads, columns=hidden),
            _output("linear_attn.out_proj", hidden, value),
        ),
        convolution + 2 * heads + size,
    )


def _kda(fields: Fields, family: Family, hidden: int) -> Part:
    """Kimi's delta attention: a gate for every channel, from a narrow projection."""
    heads, size, kernel = kda_shape(fields)
    inner = heads * size
    whole_gate = fields.inner("linear_attn_config").flag("use_full_rank_gate")

    def narrow(name: str) -> tuple[Matrix, Matrix]:
        first = Matrix(
            module=f"self_attn.{name}_a_proj", rows=size, columns=hidden, split=Split.NONE
        )
        return first, Matrix(module=f"self_attn.{name}_b_proj", rows=inner, columns=size)

    projections = [
        Matrix(module=f"self_attn.{name}_proj", rows=inner, columns=hidden) for name in "qkv"
    ]
    return Part(
        (
            *projections,
            *narrow("f"),
            Matrix(module="self_attn.b_proj", rows=heads, columns=hidden),
            *([_gate(inner, hidden)] if whole_gate else narrow("g")),
            _output("self_attn.o_proj", hidden, inner),
        ),
        3 * inner * kernel + inner + heads + size,
    )


def _gate(inner: int, hidden: int) -> Matrix:
    return Matrix(module="self_attn.g_proj", rows=inner, columns=hidden)


def _lightning(fields: Fields, family: Family, hidden: int) -> Part:
    inner = num_heads(fields) * head_dim(fields)
    return Part(
        (
            Matrix(module="self_attn.qkv_proj", rows=3 * inner, columns=hidden),
            Matrix(module="self_attn.output_gate", rows=inner, columns=hidden),
            _output("self_attn.out_proj", hidden, inner),
        ),
        inner,
    )


def _mamba1(fields: Fields, family: Family, hidden: int) -> Part:
    inner, width = mamba_inner(fields), mamba_width(fields)
    rank = fields.text("mamba_dt_rank", "time_step_rank")
    steps = -(-hidden // 16)
    if rank is None:
        steps = fields.optional_integer("mamba_dt_rank", "time_step_rank") or steps
    vectors = inner * mamba_kernel(fields) + inner * width + 2 * inner  # A, D and dt's bias
    if fields.flag("mamba_conv_bias") or fields.flag("use_conv_bias"):
        vectors += inner
    if fields.flag("mamba_proj_bias") or fields.flag("use_bias"):
        vectors += 2 * inner + hidden
    if family.state_norms:
        vectors += steps + 2 * width
    return Part(
        (
            Matrix(module="mixer.in_proj", rows=2 * inner, columns=hidden),
            Matrix(
                module="mixer.x_proj", rows=steps + 2 * width, columns=inner, split=Split.COLUMNS
            ),
            Matrix(module="mixer.dt_proj", rows=inner, columns=steps),
            _output("mixer.out_proj", hidden, inner),
        ),
        vectors,
    )


def _mamba2(fields: Fields, family: Family, hidden: int) -> Part:
    heads, size, groups = mamba2_shape(fields)
    inner = heads * size
    channels = inner + 2 * groups * mamba_width(fields)
    projected = inner + channels + heads
    vectors = channels * mamba_kernel(fields) + 3 * heads  # A, D and dt's bias
    if fields.flag("mamba_conv_bias") or fields.flag("use_conv_bias"):
        vectors += channels
    if fields.flag("mamba_proj_bias") or fields.flag("use_bias"):
        vectors += projected
    if fields.flag("projectors_bias") or (
        not fields.has("projectors_bias")
        and (fields.flag("mamba_proj_bias") or fields.flag("use_bias"))
    ):
        vectors += hidden
    if _flag(fields, family.gated_norm):
        vectors += inner
    return Part(
        (
            Matrix(module="mixer.in_proj", rows=projected, columns=hidden),
            _output("mixer.out_proj", hidden, inner),
        ),
        vectors,
    )


def _short_conv(fields: Fields, family: Family, hidden: int) -> Part:
    raise AssertionError("the weights of short convolutions are not counted")


_STATES: Mapping[StateKind, Callable[[Fields, Family, int], Part]] = {
    "delta_net": _delta_net,
    "kda": _kda,
    "lightning": _lightning,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "short_conv": _short_conv,
}
