"""Maximum length of a sequence, by the model's configuration."""

from collections.abc import Iterator, Mapping

from transformers import PreTrainedConfig

from kvscope_engine.model.errors import unsupported

_LENGTH_DEPENDENT = frozenset({"dynamic", "longrope"})
"""Rotary scalings that transformers chooses by the longest position of the whole batch."""


def max_model_len(config: PreTrainedConfig) -> int:
    """The longest sequence in tokens.

    If rotary scaling depends on the batch's longest sequence, this is the length before scaling: up
    to that length no sequence changes another's positions.

    Raises CheckpointError if the configuration names no length.
    """
    text = config.get_text_config(decoder=True)
    length = getattr(text, "max_position_embeddings", None)
    if not isinstance(length, int) or length <= 0:
        raise unsupported(text.model_type, "its configuration has no max_position_embeddings")
    for rope in _rope_parameters(text):
        if rope.get("rope_type") in _LENGTH_DEPENDENT:
            unscaled = rope.get("original_max_position_embeddings")
            if isinstance(unscaled, int):
                length = min(length, unscaled)
    return length


def _rope_parameters(config: PreTrainedConfig) -> Iterator[Mapping[str, object]]:
    """The rotary settings: one mapping, or one per kind of layer."""
    parameters = getattr(config, "rope_parameters", None)
    if not isinstance(parameters, Mapping):
        return
    if "rope_type" in parameters:
        yield parameters
        return
    for nested in parameters.values():
        if isinstance(nested, Mapping):
            yield nested
