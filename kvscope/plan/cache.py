"""One cache of one layer, with the sizes that vLLM's specification of it has."""

from dataclasses import dataclass

from kvscope.plan.layouts import MixerKind
from kvscope_engine.sizing.dtypes import Dtype


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
    """One cache of one layer, as vLLM's specification of a cache describes it."""

    kind: MixerKind
    layer: int = 0
    """The decoder layer that it belongs to, from 0."""
    heads: int = 1
    """KV heads; 1 for a latent vector and an index, which every GPU keeps whole."""
    head_elements: int = 0
    """Elements of K and V together for each token and head; or of the latent vector."""
    window: int | None = None
    """Tokens that a sliding or chunked layer sees; those that a cross-attention layer is given."""
    state: State | None = None
    entry_bytes: int | None = None
    """Bytes of an entry, whatever the type of K and V; None: by that type."""
    fp8_bytes: int | None = None
    """Bytes of an entry where K and V are fp8, which a kernel packs in a way of its own."""
    tokens_per_entry: int = 1
    """Tokens that one entry is of, in a cache that compresses."""
    alignment: int = 1
    """Bytes of which a page is a multiple."""
    block_size: int | None = None
    """Tokens of a block where the kernel decides; None: the server's setting."""

    @property
    def whole(self) -> bool:
        """Every GPU of a tensor-parallel group keeps it whole."""
        return self.kind in ("latent", "indexer") or self.entry_bytes is not None

    def elements(self, tensor: int = 1) -> int:
        """Elements of each token on one of `tensor` GPUs; a head is never divided."""
        return max(1, self.heads // tensor) * self.head_elements

    def page_bytes(self, kv_dtype: Dtype, block_size: int, tensor: int = 1) -> int:
        """Bytes of a page of this many tokens on one of `tensor` GPUs."""
        entries = block_size // self.tokens_per_entry
        if self.entry_bytes is not None:
            nbytes = entries * self.entry_bytes
        elif self.fp8_bytes is not None and kv_dtype is Dtype.FP8:
            nbytes = entries * self.fp8_bytes
        else:
            nbytes = kv_bytes(kv_dtype, entries * self.elements(tensor))
        return -(-nbytes // self.alignment) * self.alignment


def kv_bytes(dtype: Dtype, elements: int) -> int:
    """Bytes of K and V; nvfp4 has a scale in fp8 for each 16 of them."""
    return dtype.nbytes(elements) + (elements // 16 if dtype is Dtype.NVFP4 else 0)
