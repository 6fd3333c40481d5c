"""The matrices of attention and of what stands in its place, from the configuration."""

from kvscope.plan.families import Family
from kvscope.plan.layers import (
    delta_net_heads,
    delta_net_keys,
    kda_shape,
    mamba2_shape,
    mamba_inner,
    mamba_width,
)
from kvscope.plan.layouts import Layer, MixerKind, query_heads
from kvscope.plan.weights import Matrix, Split
from kvscope_engine.sizing.config_json import Fields
from kvscope_engine.sizing.heads import head_dim, num_heads


def mixer(
    fields: Fields, family: Family, kind: MixerKind, layer: Layer, hidden: int
) -> list[Matrix]:
    """Raises ConfigError if fields are missing."""
    if kind == "latent":
        return _latent_attention(fields, layer, hidden)
    if kind == "state":
        return _state(fields, family, hidden)
    gated = 2 if family.gated_query and not fields.is_off("attn_output_gate") else 1
    heads = query_heads(fields, kind)
    projections = [_rows("self_attn.q_proj", gated * heads * layer.head_dim, hidden)]
    if not layer.reuses:
        names = {"k_proj": layer.head_dim, "v_proj": layer.value_dim}
        if kind == "full" and fields.flag("attention_k_eq_v"):  # K is projected, and taken for V
            names.pop("v_proj")
        for name, size in names.items():
            rows, kv_heads = layer.kv_heads * size, layer.kv_heads
            projections.append(
                Matrix(module=f"self_attn.{name}", rows=rows, columns=hidden, kv_heads=kv_heads)
            )
    return [*projections, _output("self_attn.o_proj", hidden, heads * layer.value_dim)]


def _rows(module: str, rows: int, columns: int) -> Matrix:
    return Matrix(module=module, rows=rows, columns=columns)


def _whole(module: str, rows: int, columns: int) -> Matrix:
    return Matrix(module=module, rows=rows, columns=columns, split=Split.NONE)


def _output(module: str, hidden: int, inner: int) -> Matrix:
    return Matrix(module=module, rows=hidden, columns=inner, split=Split.COLUMNS)


def _latent_attention(fields: Fields, layer: Layer, hidden: int) -> list[Matrix]:
    """DeepSeek's attention: K and V, and mostly Q, pass through a narrow latent vector."""
    heads = num_heads(fields)
    rope, nope = fields.integer("qk_rope_head_dim"), fields.integer("qk_nope_head_dim")
    value, rank = fields.integer("v_head_dim"), fields.integer("kv_lora_rank")
    query_rank = fields.optional_integer("q_lora_rank")
    query = heads * (nope + rope)
    matrices = [
        _whole("self_attn.kv_a_proj_with_mqa", rank + rope, hidden),
        _rows("self_attn.kv_b_proj", heads * (nope + value), rank),
        _output("self_attn.o_proj", hidden, heads * value),
    ]
    if query_rank:
        matrices.append(_whole("self_attn.q_a_proj", query_rank, hidden))
        matrices.append(_rows("self_attn.q_b_proj", query, query_rank))
    else:
        matrices.append(_rows("self_attn.q_proj", query, hidden))
    if fields.flag("mla_use_output_gate"):
        matrices.append(_rows("self_attn.g_proj", heads * value, hidden))
    if layer.indexed:
        index, chosen = fields.integer("index_head_dim"), fields.integer("index_n_heads")
        matrices += [
            _whole("indexer.wk", index, hidden),
            _whole("indexer.weights_proj", chosen, hidden),
            _whole("indexer.wq_b", chosen * index, query_rank or hidden),
        ]
    return matrices


def _state(fields: Fields, family: Family, hidden: int) -> list[Matrix]:
    match family.state:
        case "delta_net":
            heads, size = delta_net_heads(fields), fields.integer("linear_value_head_dim")
            value, key = heads * size, delta_net_keys(fields)
            return [
                _rows("linear_attn.in_proj_qkvz", 2 * key + 2 * value, hidden),
                _rows("linear_attn.in_proj_ba", 2 * heads, hidden),
                _output("linear_attn.out_proj", hidden, value),
            ]
        case "kda":
            return _kda(fields, hidden)
        case "lightning":
            inner = num_heads(fields) * head_dim(fields)
            return [
                _rows("self_attn.qkv_proj", 3 * inner, hidden),
                _rows("self_attn.output_gate", inner, hidden),
                _output("self_attn.out_proj", hidden, inner),
            ]
        case "mamba1":
            inner, width = mamba_inner(fields), mamba_width(fields)
            steps = -(-hidden // 16)
            if fields.text("mamba_dt_rank", "time_step_rank") is None:  # else "auto"
                steps = fields.optional_integer("mamba_dt_rank", "time_step_rank") or steps
            return [
                _rows("mixer.in_proj", 2 * inner, hidden),
                _output("mixer.x_proj", steps + 2 * width, inner),
                _rows("mixer.dt_proj", inner, steps),
                _output("mixer.out_proj", hidden, inner),
            ]
        case "mamba2":
            heads, size, groups = mamba2_shape(fields)
            inner = heads * size
            projected = 2 * inner + 2 * groups * mamba_width(fields) + heads
            return [
                _rows("mixer.in_proj", projected, hidden),
                _output("mixer.out_proj", hidden, inner),
            ]
    raise AssertionError(f"the weights of {family.state} are not counted")


def _kda(fields: Fields, hidden: int) -> list[Matrix]:
    """Kimi's delta attention: a gate for every channel, mostly from a narrow projection."""
    heads, size, _ = kda_shape(fields)
    inner = heads * size

    def narrow(name: str) -> list[Matrix]:
        first = _whole(f"self_attn.{name}_a_proj", size, hidden)
        return [first, _rows(f"self_attn.{name}_b_proj", inner, size)]

    gate = narrow("g")
    if fields.inner("linear_attn_config").flag("use_full_rank_gate"):
        gate = [_rows("self_attn.g_proj", inner, hidden)]
    return [
        *(_rows(f"self_attn.{name}_proj", inner, hidden) for name in "qkv"),
        *narrow("f"),
        _rows("self_attn.b_proj", heads, hidden),
        *gate,
        _output("self_attn.o_proj", hidden, inner),
    ]
