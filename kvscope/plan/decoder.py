"""A text decoder's weights, layer by layer: embedding, mixers, feed-forward networks, head."""

from dataclasses import replace

from kvscope.plan.families import Family
from kvscope.plan.layouts import Layer, layers_of, num_experts
from kvscope.plan.mixers import mixer
from kvscope.plan.weights import Matrix, Part, Split, Weights
from kvscope_engine.sizing.config_json import Fields


def decoder_weights(fields: Fields, family: Family) -> Weights:
    """Raises ConfigError if fields are missing."""
    hidden = fields.integer("hidden_size", "n_embd")
    vocabulary = fields.integer("vocab_size")
    said = fields.has("tie_word_embeddings")
    tied = family.may_tie and (fields.flag("tie_word_embeddings") if said else family.tied)
    norm = hidden * (2 if family.norm_bias else 1)
    layers = layers_of(fields, family)
    known: dict[Layer, Part] = {}
    for layer in layers:
        if layer not in known:
            known[layer] = _layer(fields, family, layer, hidden, norm)

    def table(module: str, rows: int) -> Matrix:
        return Matrix(module=module, rows=rows, columns=hidden, linear=False)

    positions = fields.integer("n_positions") * hidden if family.learned_positions else 0
    inputs = _layer_inputs(fields, len(layers), hidden)
    return Weights(
        embedding=Part(
            (table("embed_tokens", vocabulary), *inputs.matrices), positions + inputs.vectors
        ),
        layers=tuple(known[layer] for layer in layers),
        head=Part(() if tied else (table("lm_head", vocabulary),), norm),
        tied=tied,
    )


def input_width(fields: Fields) -> int:
    """Elements that a token has for each layer alone, from a second embedding; mostly 0."""
    return fields.optional_integer("hidden_size_per_layer_input") or 0


def _layer_inputs(fields: Fields, layers: int, hidden: int) -> Part:
    """The second embedding, for all layers at once, and its projection."""
    width = input_width(fields)
    if not width:
        return Part()
    every = layers * width
    rows = fields.integer("vocab_size_per_layer_input")
    return Part(
        (
            Matrix(module="embed_tokens_per_layer", rows=rows, columns=every, linear=False),
            Matrix(module="per_layer_model_projection", rows=every, columns=hidden),
        ),
        width,
    )


def _layer(fields: Fields, family: Family, layer: Layer, hidden: int, norm: int) -> Part:
    parts = [Part(vectors=family.norms * norm)]
    parts += [mixer(fields, family, kind, layer, hidden) for kind in layer.mixers]
    if layer.dense and not (family.always_shared and not layer.sparse):
        parts.append(_dense(fields, family, layer, hidden))
    if layer.sparse:
        parts.append(_experts(fields, family, hidden))
    if (layer.sparse or family.always_shared) and shared_width(fields):
        parts.append(_shared(fields, family, hidden))
    if width := input_width(fields):
        parts.append(_own_input(width, hidden))
    return Part(
        tuple(matrix for part in parts for matrix in part.matrices),
        sum(part.vectors for part in parts),
    )


def _own_input(width: int, hidden: int) -> Part:
    """A layer's gate for its own input, and the way back."""
    return Part(
        (
            Matrix(module="per_layer_input_gate", rows=width, columns=hidden, split=Split.NONE),
            Matrix(module="per_layer_projection", rows=hidden, columns=width, split=Split.NONE),
        ),
        hidden,
    )


def dense_width(fields: Fields, layer: Layer) -> int:
    """Intermediate size of a layer's dense network."""
    given = fields.optional_integer("intermediate_size_mlp", "intermediate_size", "n_inner")
    width = given or 4 * fields.integer("hidden_size", "n_embd")
    return 2 * width if layer.reuses and fields.flag("use_double_wide_mlp") else width


def expert_width(fields: Fields) -> int:
    return fields.integer("moe_intermediate_size", "intermediate_size")


def experts_used(fields: Fields) -> int:
    """Routed experts that a token passes."""
    return fields.integer("num_experts_per_tok", "num_experts_per_token", "top_k_experts")


def shared_width(fields: Fields) -> int:
    """Intermediate size of the experts that every token passes, together; 0 without any."""
    given = fields.optional_integer(
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "moe_shared_expert_intermediate_size",
    )
    if given is not None:
        return given
    number = fields.optional_integer("n_shared_experts", "num_shared_experts") or 0
    return number * expert_width(fields) if number else 0


def _dense(fields: Fields, family: Family, layer: Layer, hidden: int) -> Part:
    biased = fields.flag("mlp_bias") if family.mlp_bias is None else family.mlp_bias
    return _mlp("mlp", hidden, dense_width(fields, layer), family.gated_mlp, biased)


def _experts(fields: Fields, family: Family, hidden: int) -> Part:
    experts = num_experts(fields)
    latent = fields.optional_integer("moe_latent_size", "routed_expert_hidden_size")
    expert = _mlp(
        "mlp.experts", latent or hidden, expert_width(fields), family.gated_mlp, family.expert_bias
    )
    router = Matrix(module="mlp.gate", rows=experts, columns=hidden, split=Split.NONE, linear=False)
    around: tuple[Matrix, ...] = ()
    if latent:
        around = (
            Matrix(module="mlp.fc1_latent_proj", rows=latent, columns=hidden, split=Split.NONE),
            Matrix(module="mlp.fc2_latent_proj", rows=hidden, columns=latent, split=Split.NONE),
        )
    return Part(
        (
            router,
            *around,
            *(
                replace(matrix, experts=experts, used=experts_used(fields))
                for matrix in expert.matrices
            ),
        ),
        expert.vectors * experts
        + (experts if family.expert_bias else 0)
        + (latent if latent and fields.flag("latent_moe_use_norm") else 0)
        + (4 * hidden + experts if family.experts_beside else 0),
    )


def _shared(fields: Fields, family: Family, hidden: int) -> Part:
    shared = _mlp("mlp.shared_expert", hidden, shared_width(fields), family.gated_mlp, False)
    return replace(shared, vectors=hidden if family.shared_gate else 0)


def _mlp(module: str, hidden: int, width: int, gated: bool, biased: bool) -> Part:
    names = ("gate_proj", "up_proj") if gated else ("up_proj",)
    inputs = [Matrix(module=f"{module}.{name}", rows=width, columns=hidden) for name in names]
    output = Matrix(module=f"{module}.down_proj", rows=hidden, columns=width, split=Split.COLUMNS)
    return Part((*inputs, output), len(names) * width + hidden if biased else 0)
