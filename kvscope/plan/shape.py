"""The parts of a model that determine its memory, from its configuration or from numbers alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from kvscope.plan.activations import Widths, widths
from kvscope.plan.cache import KVLayer
from kvscope.plan.decoder import decoder_weights
from kvscope.plan.families import Family, find_family
from kvscope.plan.layers import kv_layers
from kvscope.plan.layouts import MixerKind, layers_of
from kvscope.plan.quantization import kv_dtype_of, storage_of
from kvscope.plan.storage import Storage
from kvscope.plan.unread import unread
from kvscope.plan.weight_files import WeightFiles, stored_weights
from kvscope.plan.weights import Weights, bulk
from kvscope_engine.sizing.config_json import Config, ConfigError, Fields, decoder_config
from kvscope_engine.sizing.dtypes import Dtype, parse_dtype
from kvscope_engine.sizing.heads import num_heads, num_kv_heads
from kvscope_engine.sizing.units import MAX_LAYERS, MAX_SIZE, at_most, format_bytes
from kvscope_events.printable import one_line

_OVERRIDES = {
    "layers": ("num_hidden_layers",),
    "kv_heads": ("num_key_value_heads", "num_global_key_value_heads"),
    "head_dim": ("head_dim", "global_head_dim"),
}
_LAYER_LISTS = (
    "hybrid_layer_pattern",
    "block_configs",
    "layer_types",
    "layers_block_type",
    "hybrid_override_pattern",
    "attn_type_list",
)


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
    attention_free: bool = False
    """The architecture has no attention, so vLLM keeps no states for its prefix cache."""
    heads: tuple[int, int] | None = None
    """Query and KV heads, which tensor parallelism divides; None: unknown, or none."""
    weights: Weights | None = None
    """None: unknown; then no budget is calculated."""
    counted: Weights | None = None
    """By the fields, where `weights` are those of the files, in which several can be one element;
    None: `weights` are counted themselves."""
    stored_bytes: int | None = None
    """Bytes of the checkpoint's files by their index, to which counted weights are scaled."""
    widths: Widths | None = None
    """None: unknown; then activations are not estimated."""
    storage: Storage | None = None
    """Types of the stored weights, by config.json."""
    kv_dtype: Dtype | None = None
    """Type of K and V that the checkpoint states; None: the model's."""
    state_dtype: Dtype | None = None
    """Type of recurrences; None: the model's."""
    max_positions: int | None = None
    unread: tuple[str, ...] = ()
    """Fields of the configuration that can change sizes, and were not read."""
    notes: tuple[str, ...] = ()
    """Caveats about the figures."""

    @property
    def from_files(self) -> bool:
        """The weights are those of the files themselves."""
        return self.weights is not None and self.weights.given

    @property
    def exact(self) -> bool:
        """Nothing is known that would make the figures differ from the server's."""
        return not self.unread


def shape_from_config(
    config: Config,
    name: str,
    changes: Mapping[str, int] | None = None,
    *,
    stored: bool = True,
    float_bits: int = 16,
    files: WeightFiles | None = None,
    layers: tuple[int, tuple[KVLayer, ...]] | None = None,
) -> ModelShape:
    """config: config.json. changes: `layers`, `kv_heads`, `head_dim` that replace its own.

    stored: False: the types of the weights are given elsewhere, and not read. float_bits: bits of
    a float as it is served, in which those of the files are cast. files: those of the weights.
    layers: their number and what they keep, which is then not read.

    Raises ConfigError, also for a model type whose layers are not known here, or ValueError for
    changes that no model has.
    """
    at_most(MAX_SIZE, **(changes or {}))
    inner = dict(decoder_config(config))
    notes = []
    family = _family(inner, changes or {}, described=layers is not None)
    if changes:
        inner |= {name: value for key, value in changes.items() for name in _OVERRIDES[key]}
        inner.pop("per_layer_config", None)
        notes.append(f"{', '.join(changes)}: as given, not the checkpoint's own")
        if "layers" in changes:
            inner = {key: value for key, value in inner.items() if key not in _LAYER_LISTS}
    fields = Fields(inner, family.defaults)
    count, kept = layers or (len(layers_of(fields, family)), kv_layers(fields, family))
    attend = {layer.kind for layer in kept} - {"state"}
    counted = family.counted
    heads = (num_heads(fields), num_kv_heads(fields)) if attend and layers is None else None
    shape = ModelShape(
        name=one_line(name),
        attention=_attention(heads, kept),
        num_layers=count,
        layers=kept,
        attention_free=family.layout == "states",
        heads=heads,
        weights=decoder_weights(fields, family) if counted else None,
        widths=widths(fields, family) if counted else None,
        storage=_storage(inner, fields, config) if stored else None,
        kv_dtype=Dtype.FP8 if family.layout == "compressed" else _kv_dtype(inner, config),
        state_dtype=_dtype(fields, "mamba_ssm_dtype", "mamba_ssm_cache_dtype"),
        max_positions=fields.optional_integer("max_position_embeddings", "n_positions"),
        notes=(*notes, *_layer_notes(kept), *_reuse_note(fields)),
    )
    if files is not None and not changes and (stored or files.plain):
        shape = _with_files(shape, files, float_bits)
    elif inner.keys() != config.keys():
        encoder = "the text decoder only: an encoder of images or sound is not counted"
        shape = replace(shape, notes=(encoder, *shape.notes))
    if shape.weights is None:
        model_type = one_line(repr(inner.get("model_type")), 60)
        missing = f"model type {model_type}: its weights cannot be counted, give --params or a "
        missing += "folder with the index of its weight files"
        shape = replace(shape, notes=(missing, *shape.notes))
    if layers is not None:
        return shape
    passed = unread(inner, fields.read, counted=counted and not shape.from_files)
    return replace(shape, unread=passed, notes=(*shape.notes, *_unread_note(passed)))


def _with_files(shape: ModelShape, files: WeightFiles, float_bits: int) -> ModelShape:
    """The weights as the files have them; counted ones scaled where there is only their sum."""
    if not files.tensors:
        if shape.weights is not None:
            return replace(shape, stored_bytes=files.nbytes)
        return replace(shape, weights=bulk(files.nbytes, shape.num_layers, bits=8))
    latent = any(layer.kind == "latent" for layer in shape.layers)
    kv_heads = 0 if shape.heads is None or latent else shape.heads[1]
    weights, drafter = stored_weights(files, shape.num_layers, kv_heads, float_bits)
    notes = shape.notes
    if drafter:
        notes = (f"a drafter of {format_bytes(drafter)} is in the files and not loaded", *notes)
    return replace(shape, weights=weights, counted=shape.weights, notes=notes)


def _unread_note(names: tuple[str, ...]) -> list[str]:
    if not names:
        return []
    return [
        f"config.json has fields that can change sizes and are not read here: {', '.join(names)}; "
        "so the figures are not exact: compare them with the server's log, or describe what the "
        "layers keep in a file for --layers-file"
    ]


def _kv_dtype(inner: Config, config: Config) -> Dtype | None:
    """The type that vLLM takes for K and V under `auto`."""
    for part in (config, inner):
        for name in ("quantization_config", "compression_config"):
            found = part.get(name)
            if isinstance(found, Mapping) and (dtype := kv_dtype_of(found)) is not None:
                return dtype
    return None


def _family(inner: Config, changes: Mapping[str, int], described: bool) -> Family:
    model_type = str(inner.get("model_type") or "")
    family = find_family(model_type)
    if family is not None:
        return family
    if described or _OVERRIDES.keys() == changes.keys():
        return Family(counted=False)
    raise ConfigError(
        f"model type {one_line(repr(model_type), 60)}: what its layers keep is not known here; "
        "describe it in a file for --layers-file (docs/plan/planning.md has an example); "
        "to plan it as equal layers, give --layers, --kv-heads and --head-dim"
    )


def shape_from_layers(layers: tuple[int, tuple[KVLayer, ...]], name: str) -> ModelShape:
    """layers: their number, and what they keep. Neither weights nor widths are known."""
    count, kept = layers
    return ModelShape(
        name=one_line(name),
        attention=_attention(None, kept),
        num_layers=count,
        layers=kept,
        attention_free=all(layer.kind == "state" for layer in kept),
        notes=tuple(_layer_notes(kept)),
    )


def shape_from_numbers(*, layers: int, kv_heads: int, head_dim: int) -> ModelShape:
    """Equal layers of full attention; neither weights nor widths are known.

    Raises ValueError for numbers that no model has.
    """
    at_most(MAX_LAYERS, layers=layers)
    at_most(MAX_SIZE, kv_heads=kv_heads, head_dim=head_dim)
    each = KVLayer(kind="full", heads=kv_heads, head_elements=2 * head_dim)
    equal = tuple(replace(each, layer=layer) for layer in range(layers))
    return replace(shape_from_layers((layers, equal), "by numbers"), heads=(kv_heads, kv_heads))


def _attention(heads: tuple[int, int] | None, layers: tuple[KVLayer, ...]) -> str:
    kinds = [layer.kind for layer in layers]
    counts = ", ".join(
        f"{kinds.count(kind)} {kind}" for kind in get_args(MixerKind) if kind in kinds
    )
    if "latent" in kinds:
        latent = layers[kinds.index("latent")]
        size = f"{latent.head_elements} elements"
        if latent.entry_bytes is not None:
            size = f"{latent.entry_bytes} bytes"
        return f"latent ({size} a token), layers: {counts}"
    if not set(kinds) - {"state"}:
        return f"no attention, layers: {counts}"
    kept = " and ".join(
        dict.fromkeys(
            f"{layer.heads} KV head{'s' * (layer.heads > 1)} of {layer.head_elements // 2}"
            for layer in layers
            if layer.head_elements
        )
    )
    if heads is None:
        return f"{kept}, layers: {counts}"
    query, kv_heads = heads
    if kv_heads == query:
        name = "full heads"
    elif kv_heads == 1:
        name = "multi-query"
    else:
        name = "grouped-query"
    return f"{name} ({query} query, {kept}), layers: {counts}"


def _reuse_note(fields: Fields) -> list[str]:
    number = fields.optional_integer("num_kv_shared_layers")
    return [f"{number} layers attend to the KV of earlier ones and keep none"] if number else []


def _layer_notes(layers: tuple[KVLayer, ...]) -> list[str]:
    notes = []
    kinds = {layer.kind for layer in layers}
    windows = sorted({each.window for each in layers if each.window and each.kind != "cross"})
    if windows:
        notes.append(
            f"layers with a window see {', '.join(map(str, windows))} tokens and are counted as "
            "vLLM keeps them; kvscope's own pool keeps all of their KV, as with "
            "--disable-hybrid-kv-cache-manager"
        )
    if "indexer" in kinds:
        notes.append("sparse attention: an index of the tokens is kept beside the cache")
    if any(layer.tokens_per_entry > 1 for layer in layers):
        notes.append(
            "caches that compress, windows and compressors share the pool's blocks: the bytes of a "
            "token depend on the length of a sequence, so compare sequences, not tokens"
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
    if dtype is Dtype.FP32:  # vLLM serves such a checkpoint in 16 bits
        dtype = Dtype.BF16
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
