"""What a launch of either kernel says of its layer, and the shape of its programs."""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.model.attention.backend import LayerOptions
from engine.model.kv_cache import KVCache

_LOG2_E = math.log2(math.e)
_TILE_BYTES = 1 << 14
"""Of K in one program's tile: with V and three stages 96 KiB, so two programs share an H100's core.

Not measured yet: the kernels have only been run in Triton's interpreter.
"""


class ProgramShape(NamedTuple):
    """How one program walks over its keys."""

    tile_keys: int
    """Keys at once; a power of two, 16 at least."""
    num_warps: int
    num_stages: int
    """Tiles under way at once."""


class PagedLayer(NamedTuple):
    """One layer's K and V, and what it does to its scores."""

    keys: Tensor
    """(num_blocks, block_size, H_kv, D), contiguous in D; any float type, fp8 included."""
    values: Tensor
    """As keys, with the same strides."""
    score_scale: float
    """Scaling, times K's scale, in the base that `tile_scores` asks for."""
    softcap: float
    """0: none."""
    kv_scale: float
    """What a stored V is multiplied by."""
    window: int
    """Keys that a token sees, itself included; 0: all before it."""

    def decode_shape(self) -> ProgramShape:
        """Of programs with the few queries of one token."""
        return ProgramShape(self._tile_keys(16, 128), num_warps=4, num_stages=3)

    def prefill_shape(self) -> ProgramShape:
        """Of programs with a tile of tokens, whose sums take registers."""
        wide = self.keys.shape[3] > 128
        return ProgramShape(self._tile_keys(16, 64), num_warps=8 if wide else 4, num_stages=2)

    def _tile_keys(self, least: int, most: int) -> int:
        row_bytes = power_of_two(self.keys.shape[3]) * self.keys.itemsize
        return max(least, min(most, _TILE_BYTES // row_bytes))


def paged_layer(cache: KVCache, options: LayerOptions) -> PagedLayer:
    """The launch arguments that a layer's options come to."""
    keys, values = cache.blocks(options.layer)
    head_dim = keys.shape[3]
    scaling = head_dim**-0.5 if options.scaling is None else options.scaling
    scale = scaling * cache.layout.kv_scale
    softcap = options.softcap or 0.0
    return PagedLayer(
        keys=keys,
        values=values,
        score_scale=scale / softcap if softcap else scale * _LOG2_E,
        softcap=softcap,
        kv_scale=cache.layout.kv_scale,
        window=options.window or 0,
    )


_DOT_TYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
}


def dot_type(dtype: torch.dtype) -> tl.dtype:
    """Type of the operands of matrix products, for queries of `dtype`.

    Raises TypeError for types that models do not compute in.
    """
    if dtype not in _DOT_TYPES:
        raise TypeError(f"the Triton kernels compute in {', '.join(map(str, _DOT_TYPES))}")
    if dtype == torch.bfloat16 and triton.knobs.runtime.interpret:
        return (
            tl.float32
        )  # the interpreter multiplies the bits of bfloat16 as if they were integers
    return _DOT_TYPES[dtype]


def power_of_two(number: int) -> int:
    """The smallest that is not below `number`."""
    return 1 << (number - 1).bit_length()
