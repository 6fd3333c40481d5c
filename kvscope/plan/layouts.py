"""The contents of each layer: attention of some kind, a state, a feed-forward network."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from kvscope.plan.families import Family, Layout
from kvscope_engine.sizing.config_json import ConfigError, Fields
from kvscope_engine.sizing.heads import head_dim, num_heads, num_kv_heads, num_layers
from kvscope_engine.sizing.units import MAX_LAYERS
from kvscope_events.printable import one_line

MixerKind = Literal["full", "sliding", "chunked", "latent", "cross", "indexer", "state"]
Mixers = tuple[MixerKind, ...]


class Layer(NamedTuple):
    """One decoder layer."""

    mixers: Mixers
    """None, one, or heads and a state side by side."""
    dense: bool
    sparse: bool
    """It has experts."""
    kv_heads: int = 0
    """KV heads of its attention; 0: it has none, or a latent one."""
    head_dim: int = 0
    value_dim: int = 0
    """Elements of V for each head; mostly those of K."""
    indexed: bool = False
    """It selects tokens by an index of its own."""
    reuses: bool = False
    """It attends to the K and V of an earlier layer, and keeps none."""


_FULL: Mixers = ("full",)
_STATE: Mixers = ("state",)
_TYPES: Mapping[str, Mixers] = {
    "full_attention": _FULL,
    "attention": _FULL,
    "deepseek_sparse_attention": _FULL,
    "indexed_attention": _FULL,
    "sliding_attention": ("sliding",),
    "chunked_attention": ("chunked",),
    "linear_attention": _STATE,
    "mamba": _STATE,
    "conv": _STATE,
    "hybrid": ("full", "state"),
    "mlp": (),
    "moe": (),
}
"""transformers' layer types and the older names of published files."""

_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Nemotron-H's hybrid_override_pattern."""


def layers_of(fields: Fields, family: Family) -> tuple[Layer, ...]:
    """Every layer, in order. Raises ConfigError if config.json does not say what it is."""
    own = next((rule for key, rule in _OWN_RULES.items() if fields.has(key)), family.layout)
    types = None if own in ("compressed", "states beside") else _listed(fields)
    if types is None and family.layout == "letters":
        types = _by_letters(fields)
    if types is not None:
        mixers = [_TYPES[name] for name in types]
    else:
        count = num_layers(fields)
        rule = _RULES[own]
        mixers = [rule(fields, layer, count) for layer in range(count)]
    if fields.optional_integer("kv_lora_rank"):
        mixers = [tuple("latent" if kind == "full" else kind for kind in kinds) for kinds in mixers]
    mixers = [kinds * family.attentions for kinds in mixers]
    if family.feed_forward:
        sparse = _sparse(fields, len(mixers))
        dense = [family.experts_beside or not each for each in sparse]
    else:
        names = types or [""] * len(mixers)
        sparse, dense = [name == "moe" for name in names], [name == "mlp" for name in names]
    last = len(mixers) - (fields.optional_integer("num_kv_shared_layers") or 0)
    layers = []
    for layer, kinds in enumerate(mixers):
        heads = _heads(fields, layer, kinds)
        layers.append(
            Layer(
                kinds,
                dense[layer],
                sparse[layer],
                *heads,
                indexed="latent" in kinds and _indexed(fields, layer),
                reuses=layer >= last,
            )
        )
    return tuple(layers)


def _indexed(fields: Fields, layer: int) -> bool:
    """DeepSeek-V3.2: whether a layer selects tokens itself, or attends to an earlier one's."""
    if not fields.has("index_topk"):
        return False
    types = fields.items("indexer_types") or []
    if layer < len(types):
        return types[layer] == "full"
    pattern = fields.text("index_topk_pattern") or fields.items("index_topk_pattern")
    if pattern:
        return layer >= len(pattern) or pattern[layer] != "S"
    offset = fields.optional_integer("index_skip_topk_offset")
    own = max(layer - (2 if offset is None else offset) + 1, 0)
    return own % (fields.optional_integer("index_topk_freq") or 1) == 0


def _heads(fields: Fields, layer: int, kinds: Mixers) -> tuple[int, int, int]:
    """KV heads of a layer, and the sizes of its K and V; some kinds of layers have their own."""
    if not set(kinds) - {"latent", "indexer", "state"}:
        return 0, 0, 0
    kv_heads = size = value = None
    if "sliding" in kinds:
        other = fields.inner("attention_other_setting")  # Step-3.5
        kv_heads = fields.optional_integer("swa_num_key_value_heads") or other.optional_integer(
            "num_attention_groups"
        )
        size = fields.optional_integer("swa_head_dim") or other.optional_integer("head_dim")
        value = fields.optional_integer("swa_v_head_dim")
    if "full" in kinds:
        size = fields.optional_integer("global_head_dim")
        if fields.flag("attention_k_eq_v"):
            kv_heads = fields.optional_integer("num_global_key_value_heads")
    listed = fields.inner("per_layer_config")
    own = listed.inner(str(layer) if listed.has(str(layer)) else f"{layer:02}")
    block = _block(fields, layer).inner("attention")
    shared = block.optional_integer("n_heads_in_group")
    grouped = block.optional_integer("num_key_value_heads") or (
        num_heads(fields) // shared if shared else None
    )
    kept = own.optional_integer("num_key_value_heads") or grouped or kv_heads
    size = own.optional_integer("head_dim") or size or head_dim(fields)
    value = value or (fields.optional_integer("v_head_dim") if "full" in kinds else None)
    return kept or num_kv_heads(fields), size, value or size


def query_heads(fields: Fields, kind: MixerKind) -> int:
    """Query heads of a layer; sliding ones may have their own number."""
    own = None
    if kind == "sliding":
        other = fields.inner("attention_other_setting")
        own = fields.optional_integer("swa_num_attention_heads") or other.optional_integer(
            "num_attention_heads"
        )
    return own or num_heads(fields)


def _block(fields: Fields, layer: int) -> Fields:
    """The layer's part of `block_configs`; empty where there is no such list."""
    listed = fields.items("block_configs") or []
    own = listed[layer] if layer < len(listed) else {}
    return Fields(own if isinstance(own, Mapping) else {}, {})


def _listed(fields: Fields) -> list[str] | None:
    """`layer_types` by their names, checked."""
    types = fields.items("layer_types") or fields.items("layers_block_type")
    if types is None:
        return None
    names = [str(name) for name in types]
    unknown = sorted(set(names) - _TYPES.keys())
    if unknown:
        raise ConfigError(
            f"config.json has layers of unknown type: {one_line(', '.join(unknown), 200)}"
        )
    count = fields.optional_integer("num_hidden_layers", "n_layer", "num_layers")
    if count is not None and len(names) != count:
        raise ConfigError(f"config.json has {len(names)} layer_types for {count} layers")
    return names


def _by_letters(fields: Fields) -> list[str]:
    pattern = fields.text("hybrid_override_pattern")
    if not pattern:
        raise ConfigError("config.json has neither layers_block_type nor hybrid_override_pattern")
    if len(pattern) > MAX_LAYERS or set(pattern) - _LETTERS.keys():
        known = ", ".join(_LETTERS)
        raise ConfigError(
            f"config.json: hybrid_override_pattern must be letters of {known}, "
            f"got {one_line(repr(pattern), 80)}"
        )
    return [_LETTERS[letter] for letter in pattern]


def _sparse(fields: Fields, count: int) -> list[bool]:
    """One flag for each layer: it has experts."""
    if not num_experts(fields):
        return [False] * count
    step = fields.optional_integer("decoder_sparse_step", "interleave_moe_layer_step") or 1
    first = fields.optional_integer("first_k_dense_replace", "num_dense_layers") or 0
    dense = fields.items("mlp_only_layers") or []
    listed = fields.items("moe_layers")
    named, flags = fields.items("mlp_layer_types"), fields.items("moe_layer_freq")
    if named is not None and len(named) >= count:
        return [name == "sparse" for name in named[:count]]
    if flags is not None and len(flags) >= count:
        return [flag == 1 for flag in flags[:count]]
    period = fields.optional_integer("expert_layer_period")
    if period and num_experts(fields) > 1:  # Jamba
        offset = fields.optional_integer("expert_layer_offset") or 0
        return [layer % period == offset for layer in range(count)]
    if listed is not None:  # Llama 4
        return [layer in listed for layer in range(count)]
    return [
        layer >= first and layer not in dense and (layer + 1) % step == 0 for layer in range(count)
    ]


def num_experts(fields: Fields) -> int:
    """Routed experts of a sparse layer; 0: the model has none."""
    if fields.is_off("enable_moe_block"):
        return 0
    return fields.optional_integer("num_local_experts", "num_experts", "n_routed_experts") or 0


def _slides(fields: Fields) -> bool:
    return bool(fields.optional_integer("sliding_window")) and not fields.is_off(
        "use_sliding_window"
    )


def _window(fields: Fields, layer: int, count: int) -> Mixers:
    """vLLM lets all layers slide where there is a window and no list of layers."""
    latent = fields.optional_integer("kv_lora_rank")
    return ("sliding",) if _slides(fields) and not latent else _FULL


def _alternate(fields: Fields, layer: int, count: int) -> Mixers:
    return ("sliding",) if _slides(fields) and layer % 2 == 0 else _FULL


def _pattern(fields: Fields, layer: int, count: int) -> Mixers:
    """All slide but every n-th."""
    step = fields.optional_integer("sliding_window_pattern", "_sliding_window_pattern")
    return ("sliding",) if _slides(fields) and step and (layer + 1) % step else _FULL


def _late(fields: Fields, layer: int, count: int) -> Mixers:
    """Those from max_window_layers on slide, where the flag is set."""
    first = fields.optional_integer("max_window_layers") or 0
    slides = _slides(fields) and fields.flag("use_sliding_window")
    return ("sliding",) if slides and layer >= first else _FULL


def _interval(fields: Fields, layer: int, count: int) -> Mixers:
    return _FULL if (layer + 1) % fields.integer("full_attention_interval") == 0 else _STATE


def _period(fields: Fields, layer: int, count: int) -> Mixers:
    period = fields.integer("attn_layer_period")
    return _FULL if layer % period == fields.optional_integer("attn_layer_offset") else _STATE


def _indices(fields: Fields, layer: int, count: int) -> Mixers:
    full = fields.items("attn_layer_indices") or fields.items("full_attn_idxs")
    if full is None:
        raise ConfigError("config.json has neither layer_types nor attn_layer_indices")
    return _FULL if layer in full else _STATE


def _numbers(fields: Fields, layer: int, count: int) -> Mixers:
    """MiniMax: 1 is attention, 0 a state."""
    listed = fields.items("attn_type_list")
    if listed is None or len(listed) != count:
        raise ConfigError(f"config.json has no attn_type_list of {count} layers")
    return _FULL if listed[layer] == 1 else _STATE


def _kda(fields: Fields, layer: int, count: int) -> Mixers:
    """Kimi-Linear counts layers from 1."""
    inner = fields.inner("linear_attn_config")
    full, states = inner.items("full_attn_layers") or [], inner.items("kda_layers") or []
    if (layer + 1 in full) == (layer + 1 in states):
        raise ConfigError(f"config.json: linear_attn_config does not say what layer {layer + 1} is")
    return _FULL if layer + 1 in full else _STATE


def _slides_where(fields: Fields, layer: int, count: int) -> Mixers:
    """MiMo-V2: 1 is a window, 0 attention of all tokens."""
    listed = fields.items("hybrid_layer_pattern") or []
    if len(listed) < count:
        raise ConfigError(f"config.json has {len(listed)} of hybrid_layer_pattern, not {count}")
    return ("sliding",) if listed[layer] == 1 else _FULL


def _blocks(fields: Fields, layer: int, count: int) -> Mixers:
    """Nemotron's search of architectures: layers without attention, or with a matrix in place."""
    attention = _block(fields, layer).inner("attention")
    if not attention.names():
        raise ConfigError(f"config.json: block_configs does not say what layer {layer} attends to")
    return () if attention.flag("no_op") or attention.flag("replace_with_linear") else _FULL


def _rope(fields: Fields, layer: int, count: int) -> Mixers:
    """Llama 4: layers with rotary positions see their chunk."""
    listed = fields.items("no_rope_layers")
    if listed and len(listed) != count:
        raise ConfigError(f"config.json has {len(listed)} no_rope_layers for {count} layers")
    if listed:
        rotary = listed[layer] == 1
    else:
        rotary = (layer + 1) % fields.integer("no_rope_layer_interval") != 0
    return ("chunked",) if rotary and fields.optional_integer("attention_chunk_size") else _FULL


_RULES: Mapping[Layout, Callable[[Fields, int, int], Mixers]] = {
    "full": _window,
    "alternate": _alternate,
    "pattern": _pattern,
    "late": _late,
    "interval": _interval,
    "period": _period,
    "indices": _indices,
    "numbers": _numbers,
    "kda": _kda,
    "rope": _rope,
    "both": lambda fields, layer, count: ("full", "state"),
    "states": lambda fields, layer, count: _STATE,
    "pairs": lambda fields, layer, count: ("full", "cross"),
    "slides where": _slides_where,
    "blocks": _blocks,
    "states beside": lambda fields, layer, count: (
        ("full", "state") if layer in (fields.items("hybrid_layer_ids") or []) else _STATE
    ),
    "compressed": lambda fields, layer, count: ("latent",),
}
_OWN_RULES: Mapping[str, Layout] = {
    "hybrid_layer_ids": "states beside",
    "hybrid_layer_pattern": "slides where",
    "block_configs": "blocks",
}
"""Fields that say what every layer is, in whichever model type they stand."""
