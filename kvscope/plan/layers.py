"""Memory of each layer for a sequence: KV of all tokens or a window, a latent vector, a state."""

from dataclasses import dataclass

from kvscope.plan.families import Family
from kvscope.plan.layouts import Layer, MixerKind, layers_of
from kvscope_engine.sizing.config_json import ConfigError, Fields
from kvscope_engine.sizing.dtypes import Dtype
from kvscope_engine.sizing.heads import head_dim, num_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Memory of a layer without K and V: constant, however long the sequence."""

    channels: int = 0
    """Channels of the convolution; its last `kernel - 1` inputs are kept, in the model's dtype."""
    group_channels: int = 0
    """The channels among them of one group of B and C, which tensor parallelism may repeat."""
    groups: int = 0
    kernel: int = 1
    recurrent: int = 0
    """Elements of the recurrence."""
    lookahead: bool = True
    """The convolution also keeps the inputs of drafted tokens."""
    checkpoints: int = 0
    """Blocks in which vLLM keeps states from within a prompt, for the prefix cache."""

    def nbytes(self, conv: Dtype, recurrent: Dtype, tensor: int = 1, drafts: int = 0) -> int:
        """Bytes on one of `tensor` GPUs. Source: vLLM's MambaStateShapeCalculator."""
        channels = self.channels
        if self.groups and self.groups % tensor:
            channels += (tensor - self.groups) * self.group_channels
        kept = max(0, self.kernel - 1) + (drafts if self.lookahead and self.kernel > 1 else 0)
        return conv.nbytes(channels // tensor * kept) + recurrent.nbytes(self.recurrent // tensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayer:
    """Memory that one layer keeps of one sequence."""

    kind: MixerKind
    layer: int = 0
    """The decoder layer that it belongs to, from 0."""
    heads: int = 1
    """KV heads; 1 for latent attention, whose vector every GPU keeps whole."""
    head_elements: int = 0
    """Elements of K and V for each token and head; or of the latent vector."""
    window: int | None = None
    """Tokens that a sliding or chunked layer sees."""
    state: State | None = None

    def elements(self, tensor: int = 1) -> int:
        """Elements of each token on one of `tensor` GPUs; a head is never divided."""
        return max(1, self.heads // tensor) * self.head_elements


def kv_layers(fields: Fields, family: Family) -> tuple[KVLayer, ...]:
    """Memory that every layer keeps, in order. Raises ConfigError if fields are missing."""
    return tuple(
        _kept(fields, family, kind, index, layer)
        for index, layer in enumerate(layers_of(fields, family))
        if not layer.reuses
        for kind in layer.mixers
    )


def _kept(fields: Fields, family: Family, kind: MixerKind, index: int, layer: Layer) -> KVLayer:
    if kind == "state":
        return KVLayer(kind=kind, layer=index, state=state_of(fields, family))
    if kind == "latent":
        elements = fields.integer("kv_lora_rank") + fields.integer("qk_rope_head_dim")
        return KVLayer(kind=kind, layer=index, head_elements=elements)
    window = None
    if kind == "sliding":
        window = fields.integer("sliding_window")
    elif kind == "chunked":
        window = fields.integer("attention_chunk_size")
    return KVLayer(
        kind=kind,
        layer=index,
        heads=layer.kv_heads,
        head_elements=2 * layer.head_dim,
        window=window,
    )


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
        return State(channels=3 * heads * size, kernel=kernel, recurrent=heads * size * size)
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
        inner.integer("head_dim", "linear_head_dim"),
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
    heads = fields.integer("mamba_n_heads", "mamba_num_heads", "num_heads")
    groups = fields.integer("mamba_n_groups", "n_groups")
    given = fields.text("mamba_d_head")  # "auto"
    if given is None and fields.optional_integer("mamba_d_head", "mamba_head_dim"):
        return heads, fields.integer("mamba_d_head", "mamba_head_dim"), groups
    if fields.has("num_heads") and not fields.has("mamba_n_heads"):  # Mamba-2 itself
        return heads, fields.integer("head_dim"), groups
    inner = fields.optional_integer("mamba_d_ssm") or mamba_inner(fields)
    return heads, inner // heads, groups
