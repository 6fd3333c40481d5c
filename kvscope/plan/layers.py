"""Memory of each layer for a sequence: KV of all tokens or a window, a latent vector, a state."""

from kvscope.plan.cache import KVLayer, State
from kvscope.plan.families import Family
from kvscope.plan.layouts import Layer, MixerKind, layers_of
from kvscope.plan.sparse import block_index, compressed, indexer, packed_fp8
from kvscope_engine.sizing.config_json import ConfigError, Fields
from kvscope_engine.sizing.heads import head_dim, num_heads


def kv_layers(fields: Fields, family: Family) -> tuple[KVLayer, ...]:
    """Memory that every layer keeps, in order. Raises ConfigError if fields are missing."""
    return tuple(
        kept
        for index, layer in enumerate(layers_of(fields, family))
        if not layer.reuses
        for kind in layer.mixers
        for kept in _kept(fields, family, kind, index, layer)
    )


def _kept(
    fields: Fields, family: Family, kind: MixerKind, index: int, layer: Layer
) -> tuple[KVLayer, ...]:
    if kind == "state":
        return (KVLayer(kind=kind, layer=index, state=state_of(fields, family)),)
    if family.layout == "compressed":
        return compressed(fields, index)
    if kind == "latent":
        elements = fields.integer("kv_lora_rank") + fields.integer("qk_rope_head_dim")
        sparse = fields.has("index_topk")
        main = KVLayer(
            kind=kind,
            layer=index,
            head_elements=elements,
            fp8_bytes=packed_fp8(fields) if sparse else None,
        )
        return (indexer(fields, index), main) if layer.indexed else (main,)
    window = None
    if kind == "sliding":
        window = _window(fields, index) + family.window_and_own
    elif kind == "chunked":
        window = fields.integer("attention_chunk_size")
    elif kind == "cross":
        window = fields.integer("max_source_positions")
    main = KVLayer(
        kind=kind,
        layer=index,
        heads=layer.kv_heads,
        head_elements=layer.head_dim + layer.value_dim,
        window=window,
    )
    return (main, *block_index(fields, index))


def _window(fields: Fields, layer: int) -> int:
    """Tokens that a sliding layer sees, of its own where each layer has one."""
    listed = fields.items("sliding_windows") or []
    own = listed[layer] if layer < len(listed) else None
    return own if type(own) is int and own > 0 else fields.integer("sliding_window")


def state_of(fields: Fields, family: Family) -> State:
    """The state of one layer. Raises ConfigError if the configuration has no size for it."""
    if family.state == "delta_net":
        heads, size = delta_net_heads(fields), fields.integer("linear_value_head_dim")
        keys = delta_net_keys(fields)
        return State(
            channels=2 * keys + heads * size,
            kernel=fields.integer("linear_conv_kernel_dim"),
            recurrent=heads * fields.integer("linear_key_head_dim") * size,
        )
    if family.state == "kda":
        heads, size, kernel = kda_shape(fields)
        bounded = fields.inner("linear_attn_config").has("gate_lower_bound")
        return State(
            channels=3 * heads * size,
            kernel=kernel,
            recurrent=heads * size * size,
            checkpoints=int(bounded and size == 128),  # as the kernel for such gates keeps them
        )
    if family.state == "lightning":
        return State(recurrent=num_heads(fields) * head_dim(fields) ** 2)
    if family.state == "short_conv":
        width = fields.optional_integer("conv_dim") or fields.integer("hidden_size")
        return State(channels=width, kernel=fields.integer("conv_L_cache"))
    if family.state is None:
        raise ConfigError("config.json has layers with a state, which its model type does not have")
    width, kernel = mamba_width(fields), mamba_kernel(fields)
    if family.state == "mamba1":
        inner = mamba_inner(fields)
        return State(channels=inner, kernel=kernel, recurrent=inner * width, lookahead=False)
    heads, size, groups = mamba2_shape(fields)
    return State(
        channels=heads * size + 2 * groups * width,
        group_channels=2 * width,
        groups=groups,
        kernel=kernel,
        recurrent=heads * size * width,
        checkpoints=1,
    )


def delta_net_heads(fields: Fields) -> int:
    return fields.integer("linear_num_value_heads")


def delta_net_keys(fields: Fields) -> int:
    return fields.integer("linear_num_key_heads") * fields.integer("linear_key_head_dim")


def kda_shape(fields: Fields) -> tuple[int, int, int]:
    """Heads, elements of each, and the convolution's kernel."""
    inner = fields.inner("linear_attn_config")
    if not inner.has("num_heads"):
        inner = fields
    return (
        inner.integer("num_heads", "linear_num_heads"),
        inner.integer("linear_head_dim", "head_dim"),
        inner.integer("short_conv_kernel_size", "linear_conv_kernel_dim"),
    )


def mamba_width(fields: Fields) -> int:
    """Elements of the state for each channel."""
    return fields.integer("mamba_d_state", "ssm_state_size", "state_size")


def mamba_kernel(fields: Fields) -> int:
    return fields.integer("mamba_d_conv", "conv_kernel")


def mamba_inner(fields: Fields) -> int:
    """Channels of a Mamba layer."""
    own = None if fields.has("mamba_expand") else fields.optional_integer("intermediate_size")
    return own or fields.integer("mamba_expand", "expand") * fields.integer("hidden_size")


def mamba2_shape(fields: Fields) -> tuple[int, int, int]:
    """Heads, elements of each, and groups of B and C."""
    heads = fields.integer("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    groups = fields.integer("mamba_n_groups", "mamba_ngroups", "n_groups")
    given = fields.text("mamba_d_head")  # "auto"
    names = ("mamba_d_head", "mamba_head_dim", "mamba_headdim")
    if given is None and fields.optional_integer(*names):
        return heads, fields.integer(*names), groups
    if fields.has("num_heads") and not fields.has("mamba_n_heads"):  # Mamba-2 itself
        return heads, fields.integer("head_dim"), groups
    inner = fields.optional_integer("mamba_d_ssm") or mamba_inner(fields)
    return heads, inner // heads, groups
