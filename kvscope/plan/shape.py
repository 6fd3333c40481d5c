"""The parts of a model that determine its memory, from its configuration or from numbers alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvscope.plan.activations import Widths, widths
from kvscope.plan.decoder import decoder_weights
from kvscope.plan.families import Family, find_family
from kvscope.plan.layers import KVLayer, kv_layers
from kvscope.plan.layouts import layers_of
from kvscope.plan.quantization import storage_of
from kvscope.plan.storage import Storage
from kvscope.plan.weights import Weights
from kvscope_engine.sizing.config_json import Config, ConfigError, Fields, decoder_config
from kvscope_engine.sizing.dtypes import Dtype, parse_dtype
from kvscope_engine.sizing.heads import num_heads, num_kv_heads
from kvscope_engine.sizing.units import MAX_LAYERS, MAX_SIZE, at_most
from kvscope_events.printable import one_line

_OVERRIDES = {
    "layers": ("num_hidden_layers",),
    "kv_heads": ("num_key_value_heads", "num_global_key_value_heads"),
    "head_dim": ("head_dim", "global_head_dim"),
}
_LAYER_LISTS = ("layer_types", "layers_block_type", "hybrid_override_pattern", "attn_type_list")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The input of this package's arithmetic."""

    name: str
    attention: str
    """Kinds of heads and layers, as text."""
    num_layers: int
    """Decoder layers, which pipeline stages divide."""
    layers: tuple[KVLayer, ...]
    """Memory that layers keep; a layer can keep two things, or nothing."""
    heads: tuple[int, int] | None = None
    """Query and KV heads, which tensor parallelism divides; None: unknown, or none."""
    weights: Weights | None = None
    """None: unknown; then no budget is calculated."""
    widths: Widths | None = None
    """None: unknown; then activations are not estimated."""
    storage: Storage | None = None
    """Types of the stored weights, by config.json."""
    state_dtype: Dtype | None = None
    """Type of recurrences; None: the model's."""
    max_positions: int | None = None
    notes: tuple[str, ...] = ()
    """Caveats about the figures."""


def shape_from_config(
    config: Config,
    name: str,
    changes: Mapping[str, int] | None = None,
    *,
    stored: bool = True,
) -> ModelShape:
    """config: config.json. changes: `layers`, `kv_heads`, `head_dim` that replace its own.

    stored: False: the types of the weights are given elsewhere, and not read.

    Raises ConfigError, also for a model type whose layers are not known here, or ValueError for
    changes that no model has.
    """
    at_most(MAX_SIZE, **(changes or {}))
    inner = dict(decoder_config(config))
    notes = []
    if inner.keys() != config.keys():
        notes.append("the text decoder only: an encoder of images or sound is not counted")
    family = _family(inner, changes or {})
    if changes:
        inner |= {name: value for key, value in changes.items() for name in _OVERRIDES[key]}
        inner.pop("per_layer_config", None)
        notes.append(f"{', '.join(changes)}: as given, not the checkpoint's own")
        if "layers" in changes:
            inner = {key: value for key, value in inner.items() if key not in _LAYER_LISTS}
    fields = Fields(inner, family.defaults)
    layers = kv_layers(fields, family)
    kinds = {layer.kind for layer in layers}
    if not family.counted:
        model_type = one_line(repr(inner.get("model_type")), 60)
        notes.append(f"model type {model_type}: its weights cannot be counted, give --params")
    counted = family.counted
    return ModelShape(
        name=one_line(name),
        attention=_attention(fields, layers),
        num_layers=len(layers_of(fields, family)),
        layers=layers,
        heads=(num_heads(fields), num_kv_heads(fields)) if kinds - {"state"} else None,
        weights=decoder_weights(fields, family) if counted else None,
        widths=widths(fields, family) if counted else None,
        storage=_storage(inner, fields, config) if stored else None,
        state_dtype=_dtype(fields, "mamba_ssm_dtype", "mamba_ssm_cache_dtype"),
        max_positions=fields.optional_integer("max_position_embeddings", "n_positions"),
        notes=(*notes, *_layer_notes(layers), *_reuse_note(fields)),
    )


def _family(inner: Config, changes: Mapping[str, int]) -> Family:
    model_type = str(inner.get("model_type") or "")
    family = find_family(model_type)
    if family is not None:
        return family
    if _OVERRIDES.keys() == changes.keys():
        return Family(counted=False)
    raise ConfigError(
        f"model type {one_line(repr(model_type), 60)}: what its layers keep is not known here; "
        "to plan it as equal layers, give --layers, --kv-heads and --head-dim"
    )


def shape_from_numbers(*, layers: int, kv_heads: int, head_dim: int) -> ModelShape:
    """Equal layers of full attention; neither weights nor widths are known.

    Raises ValueError for numbers that no model has.
    """
    at_most(MAX_LAYERS, layers=layers)
    at_most(MAX_SIZE, kv_heads=kv_heads, head_dim=head_dim)
    return ModelShape(
        name="by numbers",
        attention=f"{kv_heads} KV heads of {head_dim}, {layers} layers",
        num_layers=layers,
        layers=tuple(
            KVLayer(kind="full", layer=layer, heads=kv_heads, head_elements=2 * head_dim)
            for layer in range(layers)
        ),
        heads=(kv_heads, kv_heads),
    )


def _attention(fields: Fields, layers: tuple[KVLayer, ...]) -> str:
    kinds = [layer.kind for layer in layers]
    counts = ", ".join(
        f"{kinds.count(kind)} {kind}"
        for kind in ("full", "sliding", "chunked", "latent", "state")
        if kind in kinds
    )
    if "latent" in kinds:
        elements = layers[kinds.index("latent")].head_elements
        return f"latent ({elements} elements a token), layers: {counts}"
    if not set(kinds) - {"state"}:
        return f"no attention, layers: {counts}"
    heads, kv_heads = num_heads(fields), num_kv_heads(fields)
    if kv_heads == heads:
        name = "full heads"
    elif kv_heads == 1:
        name = "multi-query"
    else:
        name = "grouped-query"
    kept = dict.fromkeys(
        f"{layer.heads} KV head{'s' * (layer.heads > 1)} of {layer.head_elements // 2}"
        for layer in layers
        if layer.state is None
    )
    return f"{name} ({heads} query, {' and '.join(kept)}), layers: {counts}"


def _reuse_note(fields: Fields) -> list[str]:
    number = fields.optional_integer("num_kv_shared_layers")
    return [f"{number} layers attend to the KV of earlier ones and keep none"] if number else []


def _layer_notes(layers: tuple[KVLayer, ...]) -> list[str]:
    notes = []
    kinds = {layer.kind for layer in layers}
    windows = sorted({layer.window for layer in layers if layer.window})
    if windows:
        notes.append(
            f"layers with a window see {', '.join(map(str, windows))} tokens and are counted as "
            "vLLM keeps them; kvscope's own pool keeps all of their KV, as with "
            "--disable-hybrid-kv-cache-manager"
        )
    if kinds == {"state"}:
        notes.append("no layer keeps K and V: a sequence takes the same memory at any length")
    elif "state" in kinds:
        notes.append(
            "state layers (linear, Mamba) hold a constant state for each sequence, in blocks of "
            "the pool as vLLM keeps it"
        )
    if "latent" in kinds:
        notes.append(
            "latent attention: the compressed vector is cached, as vLLM and SGLang do; "
            "transformers caches the heads, many times as much"
        )
    return notes


def _storage(inner: Config, fields: Fields, config: Config) -> Storage | None:
    dtype = _dtype(fields, "dtype", "torch_dtype")
    for part in (inner, config):
        for name in ("quantization_config", "compression_config"):
            found = part.get(name)
            if isinstance(found, Mapping):
                return storage_of(found, dtype or Dtype.BF16)
    return None if dtype is None else Storage(rest=dtype)


def _dtype(fields: Fields, *names: str) -> Dtype | None:
    name = fields.text(*names)
    if name is None or name == "auto":
        return None
    try:
        return parse_dtype(name)
    except ValueError as error:
        raise ConfigError(f"config.json: {one_line(str(error), 300)}") from error
