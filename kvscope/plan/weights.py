"""The number of a model's weights, counted from its configuration, module by module.

Matrices of the layers are counted separately from the rest (embeddings, head, norms, biases,
routers): quantized checkpoints store only the matrices in fewer bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.sizing.config_json import Fields
from engine.sizing.dtypes import Dtype
from engine.sizing.families import Family
from engine.sizing.layers import head_dim, is_linear, num_heads, num_kv_heads, num_layers

INT4_GROUP = 128
"""Weights that share a 16-bit scale and a 4-bit zero point in GPTQ and AWQ checkpoints."""
INT4_GROUP_BITS = 20


@dataclass(frozen=True, slots=True)
class Parameters:
    """Numbers of weights. `idle`: matrices of experts that a token does not pass through."""

    matrices: int = 0
    rest: int = 0
    idle: int = 0

    def __add__(self, other: "Parameters") -> "Parameters":
        return Parameters(
            self.matrices + other.matrices, self.rest + other.rest, self.idle + other.idle
        )

    @property
    def total(self) -> int:
        return self.matrices + self.rest

    @property
    def active(self) -> int:
        """Weights that one token passes through."""
        return self.total - self.idle

    def nbytes(self, dtype: Dtype) -> int:
        """Bytes in a checkpoint of this dtype; below 16 bits only the matrices are not in bf16."""
        if not dtype.quantized:
            return dtype.nbytes(self.total)
        scales = 0
        if dtype is Dtype.INT4:
            scales = -(-self.matrices // INT4_GROUP) * INT4_GROUP_BITS // 8
        return dtype.nbytes(self.matrices) + scales + Dtype.BF16.nbytes(self.rest)


def count_parameters(fields: Fields, family: Family) -> Parameters:
    """The weights of the text decoder. Raises ConfigError if fields are missing."""
    hidden = fields.integer("hidden_size", "n_embd")
    vocabulary = fields.integer("vocab_size") * hidden
    tied = (
        family.tied if not fields.has("tie_word_embeddings") else fields.flag("tie_word_embeddings")
    )
    total = Parameters(rest=vocabulary if tied else 2 * vocabulary)
    if family.learned_positions:
        total += Parameters(rest=fields.integer("n_positions") * hidden)
    norm = hidden * (2 if family.norm_bias else 1)
    total += Parameters(rest=norm)
    for linear, sparse in zip(is_linear(fields, family), sparse_layers(fields), strict=True):
        total += Parameters(rest=family.norms * norm)
        if linear:
            total += _delta_net(fields, hidden)
        elif fields.optional_integer("kv_lora_rank"):
            total += _latent_attention(fields, hidden)
        else:
            total += _attention(fields, family, hidden)
        total += (_experts if sparse else _dense)(fields, family, hidden)
    return total


def dense_width(fields: Fields) -> int:
    """Intermediate size of a layer without experts."""
    given = fields.optional_integer("intermediate_size", "n_inner")
    return given or 4 * fields.integer("hidden_size", "n_embd")


def num_experts(fields: Fields) -> int:
    """Routed experts of a sparse layer; 0: the model has none."""
    return fields.optional_integer("num_local_experts", "num_experts", "n_routed_experts") or 0


def expert_width(fields: Fields) -> int:
    return fields.integer("moe_intermediate_size", "intermediate_size")


def shared_width(fields: Fields) -> int:
    """Combined intermediate size of the experts that every token passes through; 0 without any."""
    given = fields.optional_integer("shared_expert_intermediate_size")
    if given is not None:
        return given
    return (fields.optional_integer("n_shared_experts") or 0) * expert_width(fields)


def sparse_layers(fields: Fields) -> Iterator[bool]:
    """One flag per layer: whether it has experts."""
    step = fields.optional_integer("decoder_sparse_step") or 1
    first = fields.optional_integer("first_k_dense_replace") or 0
    dense = fields.items("mlp_only_layers") or []
    experts = num_experts(fields)
    for layer in range(num_layers(fields)):
        yield experts > 0 and layer >= first and layer not in dense and (layer + 1) % step == 0


def _attention(fields: Fields, family: Family, hidden: int) -> Parameters:
    size = head_dim(fields)
    query, key = num_heads(fields) * size, num_kv_heads(fields) * size
    projected = (2 if family.gated_query else 1) * query + 2 * key
    said = fields.flag("attention_bias")
    rest = 0
    if said if family.qkv_bias is None else family.qkv_bias:
        rest += projected
    if said if family.output_bias is None else family.output_bias:
        rest += hidden
    if family.head_norms:
        rest += 2 * size
    if family.sinks:
        rest += num_heads(fields)
    return Parameters(matrices=hidden * (projected + query), rest=rest)


def _latent_attention(fields: Fields, hidden: int) -> Parameters:
    """DeepSeek's attention: K and V, and mostly Q, pass through a narrow latent vector."""
    heads = num_heads(fields)
    rope, nope = fields.integer("qk_rope_head_dim"), fields.integer("qk_nope_head_dim")
    value = fields.integer("v_head_dim")
    rank = fields.integer("kv_lora_rank")
    query_rank = fields.optional_integer("q_lora_rank")
    query = heads * (nope + rope)
    matrices = hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden
    rest = rank
    biased = rank + rope + hidden
    if query_rank:
        matrices += hidden * query_rank + query_rank * query
        rest += query_rank
        biased += query_rank
    else:
        matrices += hidden * query
    return Parameters(matrices, rest + (biased if fields.flag("attention_bias") else 0))


def _delta_net(fields: Fields, hidden: int) -> Parameters:
    """Qwen3-Next's linear attention: projections, a short convolution, decay and gate."""
    heads, size = fields.integer("linear_num_value_heads"), fields.integer("linear_value_head_dim")
    value = heads * size
    key = fields.integer("linear_num_key_heads") * fields.integer("linear_key_head_dim")
    convolution = (2 * key + value) * fields.integer("linear_conv_kernel_dim")
    projections = hidden * (2 * key + 2 * value) + hidden * 2 * heads + value * hidden
    return Parameters(matrices=projections, rest=convolution + 2 * heads + size)


def _dense(fields: Fields, family: Family, hidden: int) -> Parameters:
    biased = fields.flag("mlp_bias") if family.mlp_bias is None else family.mlp_bias
    return _mlp(hidden, dense_width(fields), family.gated_mlp, biased)


def _experts(fields: Fields, family: Family, hidden: int) -> Parameters:
    experts = num_experts(fields)
    expert = _mlp(hidden, expert_width(fields), family.gated_mlp, family.expert_bias)
    unused = experts - fields.integer("num_experts_per_tok")
    total = Parameters(
        expert.matrices * experts,
        expert.rest * experts + hidden * experts + (experts if family.expert_bias else 0),
        expert.matrices * unused,
    )
    if shared_width(fields):
        total += _mlp(hidden, shared_width(fields), family.gated_mlp, False)
        total += Parameters(rest=hidden if family.shared_gate else 0)
    return total


def _mlp(hidden: int, width: int, gated: bool, biased: bool) -> Parameters:
    inner = 2 * width if gated else width
    return Parameters(hidden * (inner + width), inner + hidden if biased else 0)
