"""KV tensors of all layers: their layout, their bytes, writing and gathering."""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from kvscope_engine.model.architecture import layer_configs
from kvscope_engine.model.errors import unsupported
from kvscope_engine.sizing.config_json import ConfigError, Fields
from kvscope_engine.sizing.heads import HEAD_FIELDS, head_dim, num_kv_heads

FP8 = torch.float8_e4m3fn
"""Type stored by `--kv-cache-dtype fp8`: 4 bits of exponent, 3 of mantissa; up to 448."""
_FP8_MOST = torch.finfo(FP8).max


class LayerShape(NamedTuple):
    """K and V of one token in one layer: each (num_kv_heads, head_dim)."""

    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """Shape and type of K and V, and the bytes that follow from them."""

    layers: tuple[LayerShape, ...]
    block_size: int
    """Tokens per block."""
    dtype: torch.dtype
    """Type that K and V are stored in."""
    computed: torch.dtype | None = None
    """Type used in computations; None: the stored one."""
    kv_scale: float = 1.0
    """Factor of a stored element when read; 1 as in a vLLM without calibration."""

    @property
    def quantized(self) -> bool:
        """Whether values read differ from those written."""
        return self.dtype == FP8

    @property
    def compute_dtype(self) -> torch.dtype:
        """Type of queries, and of K and V as attention sees them."""
        return self.computed or self.dtype

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V in all layers."""
        elements = sum(2 * layer.num_kv_heads * layer.head_dim for layer in self.layers)
        return elements * self.dtype.itemsize

    @property
    def bytes_per_block(self) -> int:
        """Bytes of K and V in all layers."""
        return self.bytes_per_token * self.block_size


def kv_layout(
    config: PreTrainedConfig,
    block_size: int,
    dtype: torch.dtype,
    stored: torch.dtype | None = None,
) -> KVLayout:
    """The layout by the model's configuration; the probe at load time verifies it.

    dtype: the model's. stored: the KV's, if different.

    Raises CheckpointError if the configuration names no heads or no layers.
    """
    shapes = [_layer_shape(layer) for layer in layer_configs(config)]
    return KVLayout(
        layers=tuple(shapes), block_size=block_size, dtype=stored or dtype, computed=dtype
    )


def _layer_shape(config: PreTrainedConfig) -> LayerShape:
    """Read by the same functions as `kvscope plan` reads config.json."""
    fields = Fields({name: getattr(config, name, None) for name in HEAD_FIELDS}, {})
    try:
        return LayerShape(num_kv_heads(fields), head_dim(fields))
    except ConfigError as error:
        raise unsupported(
            config.model_type,
            f"its configuration does not say how many KV heads a layer has ({error})",
        ) from error


class KVCache:
    """Paged K and V of every layer on one device.

    `layers[i]` is (2, num_blocks, block_size, H_kv, D), K before V; `blocks[i]` the same as a pair
    of contiguous tensors. Slots hidden by a mask must still be finite: they start at zero, and
    `clear` wipes an earlier owner's values.
    """

    def __init__(self, layout: KVLayout, num_blocks: int, device: torch.device) -> None:
        self.layout = layout
        self.num_blocks = num_blocks
        self.device = device
        # Layers of one shape share a tensor (layers, 2, num_blocks, …): one call clears a block.
        self._stacks = {
            shape: torch.zeros(
                *(count, 2, num_blocks, layout.block_size, *shape),
                dtype=layout.dtype,
                device=device,
            )
            for shape, count in Counter(layout.layers).items()
        }
        unbound = {shape: iter(stack.unbind()) for shape, stack in self._stacks.items()}
        self.layers = [next(unbound[shape]) for shape in layout.layers]
        # Per layer: K and V by block (num_blocks, block_size, H_kv, D), then by slot (…, H_kv, D).
        self.blocks = [(layer[0], layer[1]) for layer in self.layers]
        # Moved as bytes where quantized: torch indexes no fp8 on some devices.
        self._moved = torch.uint8 if layout.quantized else layout.dtype
        self._movable = [(k.view(self._moved), v.view(self._moved)) for k, v in self.blocks]
        self._slots = [(k.flatten(0, 1), v.flatten(0, 1)) for k, v in self._movable]

    @property
    def stacks(self) -> list[Tensor]:
        """All K and V: (layers, 2, num_blocks, block_size, H_kv, D) for each shape of layers.

        Views, of bytes where quantized, to be moved as they are.
        """
        return [stack.view(self._moved) for stack in self._stacks.values()]

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Store K and V of T tokens.

        slots: (T,) int64, block id * block_size + offset, distinct. key, value: (T, H_kv, D).
        """
        for stored, fresh in zip(self._slots[layer], (key, value), strict=True):
            stored.index_copy_(0, slots, self._quantized(fresh) if self.layout.quantized else fresh)

    def clear(self, block: int) -> None:
        """Zero a block in every layer, before its first token is written."""
        for stack in self._stacks.values():
            stack.select(2, block).zero_()

    def copy(self, source: int, target: int) -> None:
        """Copy a block to another in every layer, slots that hold nothing included."""
        for stack in self._stacks.values():
            stack.select(2, target).copy_(stack.select(2, source))

    def gather(self, layer: int, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of K and V of n blocks in the given order, in the type used in computations.

        blocks: (n,) int64. Returns two (n, block_size, H_kv, D). Does not change the cache.
        """
        keys, values = (stored.index_select(0, blocks) for stored in self._movable[layer])
        if self.layout.quantized:
            return self._restored(keys), self._restored(values)
        return keys, values

    def _quantized(self, fresh: Tensor) -> Tensor:
        """The bytes that stand for `fresh`; values that are too large become the largest one."""
        scaled = (fresh / self.layout.kv_scale).clamp(-_FP8_MOST, _FP8_MOST)
        return scaled.to(self.layout.dtype).view(torch.uint8)

    def _restored(self, stored: Tensor) -> Tensor:
        """Values in the type that attention computes in."""
        return stored.view(self.layout.dtype).to(self.layout.compute_dtype) * self.layout.kv_scale
