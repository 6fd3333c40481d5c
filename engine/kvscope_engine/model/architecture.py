"""Models that their configuration rules out before weights are read; the probe finds the rest."""

from collections.abc import Mapping

from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig

from kvscope_engine.model.errors import CheckpointError, unsupported

_PAGED_LAYERS = frozenset({"full_attention", "sliding_attention"})


def check_model_type(model: str, config: Mapping[str, object]) -> None:
    """config: config.json. Raises unless transformers itself knows the architecture."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise CheckpointError(
            model, "config.json names no model_type", "use a checkpoint in transformers' format"
        )
    if model_type in CONFIG_MAPPING:
        return
    if "auto_map" in config:
        raise unsupported(
            model,
            f"model type {model_type!r} needs code from the checkpoint, which is never run",
            "choose a model that transformers implements",
        )
    raise unsupported(
        model,
        f"this transformers does not know model type {model_type!r}",
        "upgrade transformers or choose another model",
    )


def check_config(model: str, config: PreTrainedConfig) -> None:
    """Raises CheckpointError for models that paged attention can never serve."""
    if config.is_encoder_decoder:
        raise unsupported(
            model, f"{config.model_type} is an encoder-decoder, which attends across sequences"
        )
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise unsupported(model, f"{config.model_type} has no causal language model")
    text = config.get_text_config(decoder=True)
    if getattr(text, "kv_lora_rank", None):
        raise unsupported(
            model, f"{config.model_type} uses multi-head latent attention, K and V differ in size"
        )
    others = sorted(set(getattr(text, "layer_types", None) or ()) - _PAGED_LAYERS)
    if others:
        raise unsupported(model, f"{config.model_type} has layers of type {', '.join(others)}")


def layer_configs(config: PreTrainedConfig) -> list[PreTrainedConfig]:
    """The configuration that each layer of the decoder sees; mostly one and the same.

    Raises CheckpointError if the number of layers is not configured.
    """
    text = config.get_text_config(decoder=True)
    num_layers = getattr(text, "num_hidden_layers", None)
    if not isinstance(num_layers, int):
        raise unsupported(text.model_type, "its configuration does not say how many layers it has")
    if getattr(text, "is_heterogeneous", False):
        return [text.per_layer_config[layer] for layer in range(num_layers)]
    return [text] * num_layers


def expected_windows(config: PreTrainedConfig) -> list[int | None]:
    """Sliding window of each layer as configured; None: no window."""
    configs = layer_configs(config)
    layer_types = getattr(config.get_text_config(decoder=True), "layer_types", None)
    if not layer_types:
        return [None] * len(configs)
    return [
        getattr(layer, "sliding_window", None) if kind == "sliding_attention" else None
        for layer, kind in zip(configs, layer_types, strict=True)
    ]
