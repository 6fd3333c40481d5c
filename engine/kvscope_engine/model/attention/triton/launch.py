"""Launch arguments of both kernels for a layer, and the shape of their programs."""

import math
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvscope_engine.model.attention.backend import LayerOptions
from kvscope_engine.model.kv_cache import FP8, KVCache

_LOG2_E = math.log2(math.e)
_DECODE_TILE_BYTES = 1 << 13
"""Bytes of K in one program's tile. With V, and double-buffered, 32 KiB: several programs on each
multiprocessor, together more than enough bytes in flight to hide the memory's latency.
"""
_PREFILL_TILE_BYTES = 1 << 14
"""Larger: the same K and V serve a whole tile of queries."""
_LARGE_TILE_BYTES = 1 << 15
"""The same where shared memory holds three of them, beside twice the queries."""
_ROOM_FOR_LARGE = 200 * 1024
"""Bytes of shared memory that one program may have there: a Hopper, but no A100 and no Ada."""
_LARGE_FROM = 2048
"""Keys of a sequence from which on large tiles are faster; short prompts do not fill them."""
# `python -m benchmarks.on_a_gpu --only sweep` tries other sizes; these are the best of an H100's.


class ProgramShape(NamedTuple):
    """One program's walk over its keys."""

    tile_keys: int
    """Keys at once; a power of two, at least 16."""
    num_warps: int
    num_stages: int
    """Triton's pipeline stages, half of them for block tables: 3 is one tile in flight, 5 is
    two."""
    tile_tokens: int = 1
    """Queries at once: a power of two, at least 16 and at most PREFILL_TILE; one in decoding."""


class PagedLayer(NamedTuple):
    """One layer's K and V, and the parameters of its scores."""

    keys: Tensor
    """(num_blocks, block_size, H_kv, D), contiguous in D; any float type, fp8 included."""
    values: Tensor
    """As keys, with the same strides."""
    score_scale: float
    """Scaling, times K's scale, in the base that `tile_scores` asks for."""
    softcap: float
    """0: no softcapping."""
    kv_scale: float
    """Factor of stored V."""
    window: int
    """Keys that a token sees, itself included; 0: all before it."""

    def decode_shape(self, query_bytes: int) -> ProgramShape:
        """For programs with the few queries of one token. query_bytes: an element's."""
        # Multiplied without tensor cores, fp8 takes the registers of the type it is converted to.
        element = self.keys.itemsize if query_bytes <= 2 else query_bytes
        tile_keys = self._tile_keys(_DECODE_TILE_BYTES, element, most=128)
        return ProgramShape(tile_keys, num_warps=2 if element == 1 else 4, num_stages=5)

    def prefill_shape(self, query_bytes: int, shared_bytes: int, longest: int) -> ProgramShape:
        """For programs with a tile of tokens, whose sums take registers. query_bytes: an element's.

        fp8 counts as the type it is converted to. shared_bytes: what one program may have. longest:
        keys of the longest sequence.
        """
        wide = self.keys.shape[3] > 128
        if query_bytes > 2:  # multiplied without tensor cores: larger tiles spill registers
            if wide:
                return ProgramShape(16, num_warps=4, num_stages=1, tile_tokens=16)
            return ProgramShape(16, num_warps=8, num_stages=3, tile_tokens=64)
        if shared_bytes >= _ROOM_FOR_LARGE and longest >= _LARGE_FROM and not wide:
            tile_keys = self._tile_keys(_LARGE_TILE_BYTES, query_bytes, most=128)
            return ProgramShape(tile_keys, num_warps=8, num_stages=3, tile_tokens=128)
        tile_keys = self._tile_keys(_PREFILL_TILE_BYTES, query_bytes, most=64)
        return ProgramShape(tile_keys, num_warps=8 if wide else 4, num_stages=3, tile_tokens=64)

    def _tile_keys(self, tile_bytes: int, element_bytes: int, most: int) -> int:
        row_bytes = power_of_two(self.keys.shape[3]) * element_bytes
        return max(16, min(most, tile_bytes // row_bytes))


def paged_layer(cache: KVCache, options: LayerOptions) -> PagedLayer:
    """The launch arguments for a layer's options."""
    keys, values = cache.blocks[options.layer]
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


@cache
def shared_bytes(device: torch.device) -> int:
    """Shared memory that one program may have."""
    if device.type != "cuda":
        return _ROOM_FOR_LARGE  # the interpreter's programs have no limit
    properties: Any = torch.cuda.get_device_properties(device)  # typed without it
    size: int = properties.shared_memory_per_block_optin
    return size


_DOT_TYPES = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
}


def dot_type(dtype: torch.dtype, stored: torch.dtype) -> tl.dtype:
    """Type of the operands of matrix products, for queries of `dtype` and the KV's own type.

    Raises TypeError for types that models do not compute in.
    """
    if dtype not in _DOT_TYPES:
        raise TypeError(f"the Triton kernels compute in {', '.join(map(str, _DOT_TYPES))}")
    if dtype == torch.bfloat16 and triton.knobs.runtime.interpret:
        return (
            tl.float32
        )  # the interpreter multiplies the bits of bfloat16 as if they were integers
    if dtype == torch.bfloat16 and stored == FP8:
        # GPUs convert fp8 to float16; from there to bfloat16 takes longer than reading the KV.
        return tl.float16
    return _DOT_TYPES[dtype]


def power_of_two(number: int) -> int:
    """The smallest that is not below `number`."""
    return 1 << (number - 1).bit_length()
