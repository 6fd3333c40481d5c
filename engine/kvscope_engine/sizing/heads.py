"""The number of layers and heads in a configuration, and the size of a head."""

from kvscope_engine.sizing.config_json import ConfigError, Fields
from kvscope_engine.sizing.units import MAX_LAYERS

HEAD_FIELDS = (
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "num_attention_groups",
    "multi_query_group_num",
    "attention_head_dim",
    "kv_channels",
    "head_dim",
    "hidden_size",
    "n_embd",
    "multi_query",
    "new_decoder_architecture",
)
"""All fields that `num_heads`, `num_kv_heads` and `head_dim` read."""


def head_dim(fields: Fields) -> int:
    """The configured size, else the hidden size divided by the number of heads."""
    given = fields.optional_integer("attention_head_dim", "head_dim", "kv_channels")
    return given or fields.integer("hidden_size", "n_embd", "d_model") // num_heads(fields)


def num_heads(fields: Fields) -> int:
    given = fields.optional_integer("decoder_attention_heads")  # beside those of an encoder
    return given or fields.integer("num_attention_heads", "n_head")


def num_kv_heads(fields: Fields) -> int:
    """The configured number; 1 for models with the flag multi_query; else one per query head."""
    given = fields.optional_integer(
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "num_attention_groups",
        "multi_query_group_num",
    )
    new_falcon = fields.flag("new_decoder_architecture")
    if fields.flag("multi_query") and not new_falcon:
        return 1
    return given or num_heads(fields)


def num_layers(fields: Fields) -> int:
    """Raises ConfigError for more than MAX_LAYERS, since each one is examined."""
    number = fields.optional_integer("decoder_layers") or fields.integer(
        "num_hidden_layers", "n_layer", "num_layers"
    )
    if number > MAX_LAYERS:
        raise ConfigError(f"a model of {number:,} layers: {MAX_LAYERS:,} is the most")
    return number
