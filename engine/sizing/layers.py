"""Memory of each layer for a sequence: KV of all tokens or a window, a latent vector, a state."""

from dataclasses import dataclass
from typing import Literal

from engine.sizing.config_json import ConfigError, Fields
from engine.sizing.dtypes import Dtype
from engine.sizing.families import Family
from engine.sizing.units import MAX_LAYERS
from kvscope_events.printable import one_line

LayerKind = Literal["full", "sliding", "latent", "state"]

_KINDS: dict[str, tuple[LayerKind, ...]] = {
    "full_attention": ("full",),
    "attention": ("full",),
    "sliding_attention": ("sliding",),
    "chunked_attention": ("sliding",),
    "linear_attention": ("state",),
    "mamba": ("state",),
    "hybrid": ("full", "state"),
}
"""transformers' layer types; a hybrid layer has heads and a state side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayer:
    """Memory that one layer keeps of one sequence."""

    kind: LayerKind
    elements: int = 0
    """Elements per token: K and V of all KV heads, or the compressed vector of latent attention."""
    window: int | None = None
    """Tokens that a sliding layer sees."""
    conv_elements: int = 0
    """Elements of the state that hold the convolution's last inputs, in the model's dtype."""
    recurrent_elements: int = 0
    """Elements of the state that hold the recurrence, in fp32."""

    def state_bytes(self, dtype: Dtype) -> int:
        """Bytes of the state of one sequence, however long. dtype: the model's."""
        conv = Dtype.BF16 if dtype.quantized else dtype
        return conv.nbytes(self.conv_elements) + Dtype.FP32.nbytes(self.recurrent_elements)


HEAD_FIELDS = (
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "head_dim",
    "hidden_size",
    "n_embd",
    "multi_query",
    "new_decoder_architecture",
)
"""All fields that `num_heads`, `num_kv_heads` and `head_dim` read."""


def head_dim(fields: Fields) -> int:
    """The configured size, else the hidden size divided by the number of heads."""
    given = fields.optional_integer("head_dim")
    return given or fields.integer("hidden_size", "n_embd") // num_heads(fields)


def num_heads(fields: Fields) -> int:
    return fields.integer("num_attention_heads", "n_head")


def num_kv_heads(fields: Fields) -> int:
    """The configured number; 1 for models with the flag multi_query; else one per query head."""
    given = fields.optional_integer("num_key_value_heads", "num_kv_heads", "n_head_kv")
    new_falcon = fields.flag("new_decoder_architecture")
    if fields.flag("multi_query") and not new_falcon:
        return 1
    return given or num_heads(fields)


def num_layers(fields: Fields) -> int:
    """Raises ConfigError for more than MAX_LAYERS, since each one is examined."""
    number = fields.integer("num_hidden_layers", "n_layer", "num_layers")
    if number > MAX_LAYERS:
        raise ConfigError(f"a model of {number:,} layers: {MAX_LAYERS:,} is the most")
    return number


def kv_layers(fields: Fields, family: Family) -> tuple[KVLayer, ...]:
    """Memory that every layer keeps, in order. Raises ConfigError if fields are missing."""
    rank = fields.optional_integer("kv_lora_rank")
    if rank:
        elements = rank + fields.integer("qk_rope_head_dim")
        return (KVLayer(kind="latent", elements=elements),) * num_layers(fields)
    layers: list[KVLayer] = []
    for kind in (kind for kinds in _layer_kinds(fields, family) for kind in kinds):
        if kind == "state":
            layers.append(_state_layer(fields))
            continue
        window = None
        if kind == "sliding":
            window = fields.integer("sliding_window", "attention_chunk_size")
        elements = 2 * num_kv_heads(fields) * head_dim(fields)
        layers.append(KVLayer(kind=kind, elements=elements, window=window))
    return tuple(layers)


def is_linear(fields: Fields, family: Family) -> list[bool]:
    """One flag per layer: whether it has a state and no heads."""
    return [kinds == ("state",) for kinds in _layer_kinds(fields, family)]


def _layer_kinds(fields: Fields, family: Family) -> list[tuple[LayerKind, ...]]:
    count = num_layers(fields)
    types = fields.items("layer_types") or fields.items("layers_block_type")
    if types is None:
        return [_kind_by_rule(fields, family, layer, count) for layer in range(count)]
    names = [str(name) for name in types]
    unknown = sorted(set(names) - _KINDS.keys())
    if unknown:
        raise ConfigError(
            f"config.json has layers of unknown type: {one_line(', '.join(unknown), 200)}"
        )
    if len(types) != count:
        raise ConfigError(f"config.json has {len(types)} layer_types for {count} layers")
    return [_KINDS[name] for name in names]


def _kind_by_rule(fields: Fields, family: Family, layer: int, count: int) -> tuple[LayerKind, ...]:
    """The kinds of layer `layer` of `count`, from the fields that the configuration has."""
    period = fields.optional_integer("attn_layer_period")
    if period:  # Jamba
        offset = fields.optional_integer("attn_layer_offset") or 0
        return ("full",) if layer % period == offset else ("state",)
    attention_layers = fields.items("attn_layer_indices")
    if attention_layers is not None:  # Bamba
        return ("full",) if layer in attention_layers else ("state",)
    interval = fields.optional_integer("full_attention_interval")
    if interval:  # Qwen3-Next
        return ("full",) if (layer + 1) % interval == 0 else ("state",)
    if not fields.optional_integer("sliding_window") or fields.is_off("use_sliding_window"):
        return ("full",)
    pattern = fields.optional_integer("sliding_window_pattern", "_sliding_window_pattern")
    slides = {
        "all": True,
        "none": False,
        "alternate": layer % 2 == 0,
        "pattern": bool(pattern and (layer + 1) % pattern),
        "late": layer >= (fields.optional_integer("max_window_layers") or 0)
        and fields.flag("use_sliding_window"),
    }
    return ("sliding",) if slides[family.windows] else ("full",)


def _state_layer(fields: Fields) -> KVLayer:
    """Gated delta net, Mamba 2 or Mamba 1, distinguished by their fields."""
    if fields.has("linear_num_value_heads"):
        keys = fields.integer("linear_num_key_heads") * fields.integer("linear_key_head_dim")
        heads = fields.integer("linear_num_value_heads")
        value_dim = fields.integer("linear_value_head_dim")
        return KVLayer(
            kind="state",
            conv_elements=(2 * keys + heads * value_dim)
            * (fields.integer("linear_conv_kernel_dim") - 1),
            recurrent_elements=heads * fields.integer("linear_key_head_dim") * value_dim,
        )
    if not fields.has("mamba_d_state"):
        raise ConfigError("config.json does not say how large the state of its layers is")
    width = fields.integer("mamba_d_state")
    kernel = fields.integer("mamba_d_conv")
    if fields.has("mamba_n_heads"):
        inner = fields.integer("mamba_n_heads") * fields.integer("mamba_d_head")
        conv = inner + 2 * fields.integer("mamba_n_groups") * width
    else:
        inner = conv = fields.integer("mamba_expand") * fields.integer("hidden_size")
    return KVLayer(
        kind="state", conv_elements=conv * (kernel - 1), recurrent_elements=inner * width
    )
