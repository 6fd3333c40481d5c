"""Memory of one forward pass beyond weights and KV: an estimate, and its formula.

For T tokens in a step and S sampled rows, with elements of e bytes:

    attention      T * (2 h + 2 (q + k + v)) * e     residual, normed; Q, K, V before and after RoPE
    feed-forward   T * (2 h + 3 w) * e               residual, normed; gate, up, their product
    experts        T * (2 h + n (2 h + 3 w)) * e   n copies of a token, one to each of its experts
    logits         (T * h + S * V) * e + S * V * 4   final hidden; logits, and the same in fp32

and the peak is the largest of the four, since each is freed before the next one. Read off the order
of operations in transformers' decoder layers; attention is taken to keep no score matrix, as flash
kernels do. A layer with a state counts as attention with its own projections. Tensor parallelism
divides what is projected, not the residual, and the logits meet on one GPU. Not in it: workspaces
of cuBLAS and kernels, CUDA graphs, fragmentation. A measurement at start-up replaces it wherever an
engine runs.
"""

from dataclasses import dataclass

from kvscope.plan.decoder import (
    dense_width,
    expert_width,
    experts_used,
    input_width,
    shared_width,
)
from kvscope.plan.families import Family
from kvscope.plan.layouts import Layer, MixerKind, layers_of
from kvscope.plan.mixers import mixer
from kvscope.plan.weights import Split
from kvscope_engine.sizing.config_json import Fields
from kvscope_engine.sizing.dtypes import Dtype
from kvscope_engine.sizing.heads import num_heads


@dataclass(frozen=True, slots=True)
class Phase:
    """Elements that a token holds in one phase of a layer."""

    whole: int
    """On every GPU."""
    divided: int = 0
    """Among the GPUs of a tensor-parallel group."""

    def on_gpu(self, tensor: int) -> int:
        return self.whole + -(-self.divided // tensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Elements that a token holds."""

    hidden: int
    phases: tuple[Phase, ...]
    vocabulary: int

    def activation_bytes(self, tokens: int, sampled: int, dtype: Dtype, tensor: int = 1) -> int:
        """Bytes at the peak of a step. dtype: the one that is computed in."""
        logits = sampled * self.vocabulary
        peak = max(phase.on_gpu(tensor) for phase in self.phases)
        return max(
            dtype.nbytes(tokens * peak),
            dtype.nbytes(tokens * self.hidden + logits) + Dtype.FP32.nbytes(logits),
        )


def widths(fields: Fields, family: Family) -> Widths:
    """Raises ConfigError if the fields are not sufficient."""
    hidden = fields.integer("hidden_size", "n_embd")
    layers = layers_of(fields, family)
    held = 2 * hidden + len(layers) * input_width(fields)
    phases = []
    for layer in dict.fromkeys(layers):
        for kind in layer.mixers:
            phases.append(Phase(held, 2 * _projected(fields, family, kind, layer, hidden)))
        if layer.dense:
            phases.append(Phase(held, 3 * dense_width(fields, layer)))
    if any(layer.sparse for layer in layers):
        copies = experts_used(fields)
        whole = held + copies * 2 * hidden
        phases.append(Phase(whole, copies * 3 * expert_width(fields)))
        phases.append(Phase(held, 3 * shared_width(fields)))
    return Widths(hidden=hidden, phases=tuple(phases), vocabulary=fields.integer("vocab_size"))


def _projected(fields: Fields, family: Family, kind: MixerKind, layer: Layer, hidden: int) -> int:
    """Q, K and V of one token, or what stands in their place."""
    if kind == "latent":
        query = fields.integer("qk_nope_head_dim") + fields.integer("qk_rope_head_dim")
        return num_heads(fields) * (2 * query + fields.integer("v_head_dim"))
    if kind == "state":
        made = mixer(fields, family, kind, layer, hidden)
        return sum(matrix.rows for matrix in made if matrix.split is Split.ROWS)
    queries = (2 if family.gated_query else 1) * num_heads(fields)
    return (queries + 2 * layer.kv_heads) * layer.head_dim
