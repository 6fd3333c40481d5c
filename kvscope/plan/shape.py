"""The parts of a model that determine its memory, from its configuration or from numbers alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.sizing.config_json import Config, ConfigError, Fields, decoder_config
from engine.sizing.dtypes import Dtype, parse_dtype
from engine.sizing.families import FAMILIES, OTHER
from engine.sizing.layers import KVLayer, head_dim, kv_layers, num_heads, num_kv_heads
from engine.sizing.units import MAX_LAYERS, MAX_SIZE, at_most
from kvscope.plan.activations import Widths, widths
from kvscope.plan.weights import Parameters, count_parameters
from kvscope_events.printable import one_line

_OVERRIDES = {
    "layers": "num_hidden_layers",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The input of this package's arithmetic."""

    name: str
    attention: str
    """Kinds of heads and layers, as text."""
    layers: tuple[KVLayer, ...]
    parameters: Parameters | None
    """None: unknown; then no budget is calculated."""
    widths: Widths | None
    """None: unknown; then activations are not estimated."""
    dtype: Dtype | None
    """Type of the stored weights, according to config.json."""
    max_positions: int | None
    notes: tuple[str, ...] = ()
    """Caveats about the figures."""


def shape_from_config(
    config: Config, name: str, changes: Mapping[str, int] | None = None
) -> ModelShape:
    """config: config.json. changes: `layers`, `kv_heads`, `head_dim` that replace its own.

    Raises ConfigError, or ValueError for changes that no model has.
    """
    at_most(MAX_SIZE, **(changes or {}))
    inner = dict(decoder_config(config))
    notes = []
    if inner.keys() != config.keys():
        notes.append("the text decoder only: an encoder of images or sound is not counted")
    model_type = str(inner.get("model_type") or "")
    family = FAMILIES.get(model_type)
    if changes:
        inner |= {_OVERRIDES[key]: value for key, value in changes.items()}
        notes.append(f"{', '.join(changes)}: as given, not the checkpoint's own")
        if "layers" in changes:
            inner.pop("layer_types", None)
    fields = Fields(inner, (family or OTHER).defaults)
    layers = kv_layers(fields, family or OTHER)
    notes += _layer_notes(layers)
    if family is None:
        notes.append(
            f"model type {one_line(repr(model_type), 60)}: its weights cannot be counted, "
            "give --params"
        )
    quantization = inner.get("quantization_config")
    if isinstance(quantization, Mapping):
        method = one_line(str(quantization.get("quant_method")), 60)
        notes.append(f"stored quantized ({method}): name the weights' width with --dtype")
    return ModelShape(
        name=one_line(name),
        attention=_attention(fields, layers),
        layers=layers,
        parameters=count_parameters(fields, family) if family else None,
        widths=widths(fields, family) if family else None,
        dtype=_stored_dtype(fields),
        max_positions=fields.optional_integer("max_position_embeddings", "n_positions"),
        notes=tuple(notes),
    )


def shape_from_numbers(*, layers: int, kv_heads: int, head_dim: int) -> ModelShape:
    """Equal layers of full attention; neither weights nor widths are known.

    Raises ValueError for numbers that no model has.
    """
    at_most(MAX_LAYERS, layers=layers)
    at_most(MAX_SIZE, kv_heads=kv_heads, head_dim=head_dim)
    layer = KVLayer(kind="full", elements=2 * kv_heads * head_dim)
    return ModelShape(
        name="by numbers",
        attention=f"{kv_heads} KV heads of {head_dim}, {layers} layers",
        layers=(layer,) * layers,
        parameters=None,
        widths=None,
        dtype=None,
        max_positions=None,
    )


def _attention(fields: Fields, layers: tuple[KVLayer, ...]) -> str:
    kinds = [layer.kind for layer in layers]
    counts = ", ".join(
        f"{kinds.count(kind)} {kind}"
        for kind in ("full", "sliding", "latent", "state")
        if kind in kinds
    )
    if "latent" in kinds:
        return f"latent ({layers[0].elements} elements a token), layers: {counts}"
    heads, kv_heads = num_heads(fields), num_kv_heads(fields)
    if kv_heads == heads:
        name = "full heads"
    elif kv_heads == 1:
        name = "multi-query"
    else:
        name = "grouped-query"
    return f"{name} ({heads} query, {kv_heads} KV heads of {head_dim(fields)}), layers: {counts}"


def _layer_notes(layers: tuple[KVLayer, ...]) -> list[str]:
    notes = []
    windows = sorted({layer.window for layer in layers if layer.window})
    if windows:
        notes.append(
            f"sliding layers see {', '.join(map(str, windows))} tokens; kvscope's pool keeps all "
            "of their KV, --window-aware counts what a window-aware pool keeps"
        )
    if any(layer.kind == "state" for layer in layers):
        notes.append(
            "state layers (linear, Mamba) hold a constant state for each sequence, beside the pool"
        )
    if any(layer.kind == "latent" for layer in layers):
        notes.append(
            "latent attention: the compressed vector is cached, as vLLM and SGLang do; "
            "transformers caches the heads, many times as much"
        )
    return notes


def _stored_dtype(fields: Fields) -> Dtype | None:
    name = fields.text("dtype", "torch_dtype")
    if name is None:
        return None
    try:
        return parse_dtype(name)
    except ValueError as error:
        raise ConfigError(f"config.json: {one_line(str(error), 300)}") from error
