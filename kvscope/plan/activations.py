"""Memory of one forward pass beyond weights and KV: an estimate, and its formula.

For T tokens in a step and S sampled rows, with elements of e bytes:

    attention      T * (2 h + 2 (q + k + v)) * e     residual, normed; Q, K, V before and after RoPE
    feed-forward   T * (2 h + 3 w) * e               residual, normed; gate, up, their product
    experts        T * (2 h + n (2 h + 3 w)) * e   n copies of a token, one to each of its experts
    logits         (T * h + S * V) * e + S * V * 4   final hidden; logits, and the same in fp32

and the peak is the largest of the four, since each is freed before the next one. Derived from the
order of operations in transformers' decoder layers; attention is assumed to keep no score matrix,
like flash kernels. Not included: workspaces of cuBLAS and kernels, CUDA graphs, fragmentation. In a
running engine a measurement at start-up replaces the estimate.
"""

from dataclasses import dataclass

from engine.sizing.config_json import Fields
from engine.sizing.dtypes import Dtype
from engine.sizing.families import Family
from engine.sizing.layers import head_dim, num_heads, num_kv_heads
from kvscope.plan.weights import (
    dense_width,
    expert_width,
    shared_width,
    sparse_layers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Elements that a token holds."""

    hidden: int
    peak: int
    """Elements that a token holds in the widest phase of a layer."""
    vocabulary: int

    def activation_bytes(self, tokens: int, sampled: int, dtype: Dtype) -> int:
        """Bytes at the peak of a step. dtype: the weights'; quantized ones compute in 16 bits."""
        compute = Dtype.BF16 if dtype.quantized else dtype
        logits = sampled * self.vocabulary
        return max(
            compute.nbytes(tokens * self.peak),
            compute.nbytes(tokens * self.hidden + logits) + Dtype.FP32.nbytes(logits),
        )


def widths(fields: Fields, family: Family) -> Widths:
    """Raises ConfigError if the fields are not sufficient."""
    hidden = fields.integer("hidden_size", "n_embd")
    phases = [2 * hidden + 2 * _projected(fields, family)]
    sparse = list(sparse_layers(fields))
    if not all(sparse):
        phases.append(2 * hidden + 3 * dense_width(fields))
    if any(sparse):
        copies = fields.integer("num_experts_per_tok")
        routed = copies * (2 * hidden + 3 * expert_width(fields))
        phases.append(2 * hidden + max(routed, 3 * shared_width(fields)))
    return Widths(hidden=hidden, peak=max(phases), vocabulary=fields.integer("vocab_size"))


def _projected(fields: Fields, family: Family) -> int:
    """Q, K and V of one token."""
    heads = num_heads(fields)
    if fields.optional_integer("kv_lora_rank"):
        query = fields.integer("qk_nope_head_dim") + fields.integer("qk_rope_head_dim")
        return heads * (2 * query + fields.integer("v_head_dim"))
    size = head_dim(fields)
    return (2 if family.gated_query else 1) * heads * size + 2 * num_kv_heads(fields) * size
