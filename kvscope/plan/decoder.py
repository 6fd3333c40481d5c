"""A text decoder's weights, layer by layer: embedding, mixers, feed-forward networks, head.

Matrices are counted, and two norms a layer; biases and other vectors are not: less than a hundredth
of any model, which the tests hold to what transformers builds.
"""

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
    tied = fields.flag("tie_word_embeddings") if said else family.tied
    layers = layers_of(fields, family)
    known = {layer: _layer(fields, family, layer, hidden) for layer in dict.fromkeys(layers)}

    def table(module: str, rows: int) -> Matrix:
        return Matrix(module=module, rows=rows, columns=hidden, linear=False)

    return Weights(
        embedding=Part(
            (table("embed_tokens", vocabulary), *_layer_inputs(fields, len(layers), hidden))
        ),
        layers=tuple(known[layer] for layer in layers),
        head=Part(() if tied else (table("lm_head", vocabulary),), hidden),
        tied=tied,
    )


def input_width(fields: Fields) -> int:
    """Elements that a token has for each layer alone, from a second embedding; mostly 0."""
    return fields.optional_integer("hidden_size_per_layer_input") or 0


def _layer_inputs(fields: Fields, layers: int, hidden: int) -> tuple[Matrix, ...]:
    """The second embedding, for all layers at once, and its projection."""
    every = layers * input_width(fields)
    if not every:
        return ()
    rows = fields.integer("vocab_size_per_layer_input")
    return (
        Matrix(module="embed_tokens_per_layer", rows=rows, columns=every, linear=False),
        Matrix(module="per_layer_model_projection", rows=every, columns=hidden),
    )


def _layer(fields: Fields, family: Family, layer: Layer, hidden: int) -> Part:
    matrices = [
        each for kind in layer.mixers for each in mixer(fields, family, kind, layer, hidden)
    ]
    if layer.dense and not (family.always_shared and not layer.sparse):
        matrices += _mlp("mlp", hidden, dense_width(fields, layer), family.gated_mlp)
    if layer.sparse:
        matrices += _experts(fields, family, hidden)
    shared = shared_width(fields) if layer.sparse or family.always_shared else 0
    if shared:
        matrices += _mlp("mlp.shared_expert", hidden, shared, family.gated_mlp)
    if width := input_width(fields):  # a layer's gate for its own input, and the way back
        matrices += [
            Matrix(module="per_layer_input_gate", rows=width, columns=hidden, split=Split.NONE),
            Matrix(module="per_layer_projection", rows=hidden, columns=width, split=Split.NONE),
        ]
    return Part(tuple(matrices), 2 * hidden)


def dense_width(fields: Fields, layer: Layer) -> int:
    """Intermediate size of a layer's dense network."""
    given = fields.optional_integer(
        "dense_intermediate_size",
        "intermediate_size_mlp",
        "intermediate_size",
        "n_inner",
        "ffn_dim",
    )
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


def _experts(fields: Fields, family: Family, hidden: int) -> list[Matrix]:
    experts, used = num_experts(fields), experts_used(fields)
    latent = fields.optional_integer("moe_latent_size", "routed_expert_hidden_size")
    place = "" if family.experts_beside else "mlp."
    router = Matrix(
        module=f"{place}gate", rows=experts, columns=hidden, split=Split.NONE, linear=False
    )
    around = []
    if latent:
        down = Matrix(module="mlp.fc1_latent_proj", rows=latent, columns=hidden, split=Split.NONE)
        around = [down, replace(down, module="mlp.fc2_latent_proj", rows=hidden, columns=latent)]
    inner = _mlp(f"{place}experts", latent or hidden, expert_width(fields), family.gated_mlp)
    return [router, *around, *(replace(each, experts=experts, used=used) for each in inner)]


def _mlp(module: str, hidden: int, width: int, gated: bool) -> list[Matrix]:
    names = ("gate_proj", "up_proj") if gated else ("up_proj",)
    inputs = [Matrix(module=f"{module}.{name}", rows=width, columns=hidden) for name in names]
    output = Matrix(module=f"{module}.down_proj", rows=hidden, columns=width, split=Split.COLUMNS)
    return [*inputs, output]
