"""A layer's work between its products, each in one Triton kernel instead of several of torch's.

In a decode step a GPU spends as long on a kernel of a few rows as on starting it. Importing this
imports Triton; only `kvscope_engine.model.plain_decoder` does so.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvscope_engine.model.attention.triton.launch import power_of_two
from kvscope_engine.model.kv_cache import FP8, KVCache

_HEADS_AT_ONCE = 8
_ELEMENTS_AT_ONCE = 1024
_FP8_MOST = torch.finfo(FP8).max


@triton.jit
def _norm_kernel(hidden, weight, normed, epsilon, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Grid (T). hidden, normed: (T, WIDTH)."""
    row = tl.program_id(0).to(tl.int64) * WIDTH
    columns = tl.arange(0, PADDED)
    is_column = columns < WIDTH
    elements = tl.load(hidden + row + columns, mask=is_column, other=0.0).to(tl.float32)
    factors = tl.load(weight + columns, mask=is_column, other=0.0).to(tl.float32)
    result = elements * tl.rsqrt(tl.sum(elements * elements, 0) / WIDTH + epsilon) * factors
    tl.store(normed + row + columns, result.to(normed.dtype.element_ty), mask=is_column)


def rms_normed(hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """hidden / √(mean of squares + epsilon) * weight. hidden: (T, C), contiguous."""
    tokens, width = hidden.shape
    normed = torch.empty_like(hidden)
    _norm_kernel[(tokens,)](
        hidden, weight, normed, epsilon, WIDTH=width, PADDED=power_of_two(width), num_warps=8
    )
    return normed


@triton.jit
def _heads_kernel(
    projected,
    cos,
    sin,
    slots,
    query_weight,
    key_weight,
    rotated,
    keys,
    values,
    epsilon,
    kv_scale,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    NORMED: tl.constexpr,
    MOST: tl.constexpr,
):
    """Grid (T, tiles of heads). rotated: (T, H + H_kv, D). keys, values: by slot, (…, H_kv, D)."""
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * TILE_HEADS + tl.arange(0, TILE_HEADS)
    dims = tl.arange(0, PADDED_DIM)
    across = tl.where(dims < HEAD_DIM // 2, dims + HEAD_DIM // 2, dims - HEAD_DIM // 2)
    is_dim = (dims < HEAD_DIM)[None, :]
    turning = NUM_HEADS + NUM_KV_HEADS
    is_turned = (heads < turning)[:, None]
    row = projected + (token * (turning + NUM_KV_HEADS) + heads[:, None]) * HEAD_DIM
    is_head = (heads < turning + NUM_KV_HEADS)[:, None]
    own = tl.load(row + dims[None, :], mask=is_head & is_dim, other=0.0).to(tl.float32)
    other = tl.load(row + across[None, :], mask=is_turned & is_dim, other=0.0).to(tl.float32)
    result = own
    if NORMED:
        inverse = tl.rsqrt(tl.sum(own * own, 1) / HEAD_DIM + epsilon)[:, None]
        is_query = (heads < NUM_HEADS)[:, None]
        weight = tl.where(
            is_query,
            tl.load(query_weight + dims, mask=dims < HEAD_DIM, other=0.0)[None, :],
            tl.load(key_weight + dims, mask=dims < HEAD_DIM, other=0.0)[None, :],
        ).to(tl.float32)
        weight_across = tl.where(
            is_query,
            tl.load(query_weight + across, mask=dims < HEAD_DIM, other=0.0)[None, :],
            tl.load(key_weight + across, mask=dims < HEAD_DIM, other=0.0)[None, :],
        ).to(tl.float32)
        own = own * inverse * weight
        other = other * inverse * weight_across
    angle = token * HEAD_DIM + dims
    cosine = tl.load(cos + angle, mask=dims < HEAD_DIM, other=0.0).to(tl.float32)[None, :]
    sine = tl.load(sin + angle, mask=dims < HEAD_DIM, other=0.0).to(tl.float32)[None, :]
    result = tl.where(is_turned, own * cosine + other * sine, result)
    result = result.to(rotated.dtype.element_ty)
    place = (token * turning + heads)[:, None] * HEAD_DIM + dims[None, :]
    tl.store(rotated + place, result, mask=is_turned & is_dim)

    slot = tl.load(slots + token) * (NUM_KV_HEADS * HEAD_DIM)
    stored = result.to(tl.float32) / kv_scale
    if MOST > 0:
        stored = tl.minimum(tl.maximum(stored, -MOST), MOST)
    stored = stored.to(keys.dtype.element_ty)
    key = (heads - NUM_HEADS)[:, None]
    is_key = is_turned & (key >= 0)
    tl.store(keys + slot + key * HEAD_DIM + dims[None, :], stored, mask=is_key & is_dim)
    value = (heads - turning)[:, None]
    is_value = is_head & (value >= 0)
    tl.store(values + slot + value * HEAD_DIM + dims[None, :], stored, mask=is_value & is_dim)


def write_heads(
    projected: Tensor,
    norms: tuple[Tensor, Tensor, float] | None,
    angles: tuple[Tensor, Tensor],
    cache: KVCache,
    layer: int,
    slots: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Norm and rotate the heads, and write K and V to their slots.

    projected: (T, (H + 2 H_kv) * D), contiguous. norms: weights (D,) of the query and of the key
    heads, and epsilon. angles: cos and sin, (T, 1, D) each, contiguous, the sines of the first half
    negative. slots: (T,) int64.

    Returns queries (T, H, D), keys and values (T, H_kv, D). Raises ValueError for angles of only a
    part of each head.
    """
    keys, values = cache.blocks[layer]
    num_kv_heads, head_dim = keys.shape[2:]
    tokens = len(projected)
    num_all = projected.shape[1] // head_dim
    turning = num_all - num_kv_heads
    num_heads = turning - num_kv_heads
    rotated = projected.new_empty(tokens, turning, head_dim)
    cos, sin = angles
    if cos.shape[-1] != head_dim:
        raise ValueError(f"{cos.shape[-1]} of {head_dim} elements of each head are rotated")
    query_weight, key_weight, epsilon = norms or (cos, cos, 0.0)
    _heads_kernel[(tokens, triton.cdiv(num_all, _HEADS_AT_ONCE))](
        projected,
        cos,
        sin,
        slots,
        query_weight,
        key_weight,
        rotated,
        keys,
        values,
        epsilon,
        cache.layout.kv_scale,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        TILE_HEADS=_HEADS_AT_ONCE,
        HEAD_DIM=head_dim,
        PADDED_DIM=power_of_two(head_dim),
        NORMED=norms is not None,
        MOST=_FP8_MOST if cache.layout.quantized else 0.0,
        num_warps=4,
    )
    value = projected.view(tokens, num_all, head_dim)[:, turning:]
    return rotated[:, :num_heads], rotated[:, num_heads:], value


@triton.jit
def _gate_kernel(projected, gated, width, TILE: tl.constexpr):
    """Grid (T, tiles of I). projected: (T, 2 I), the gates before what they let through."""
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_column = columns < width
    row = projected + token * 2 * width
    gate = tl.load(row + columns, mask=is_column, other=0.0).to(tl.float32)
    up = tl.load(row + width + columns, mask=is_column, other=0.0).to(tl.float32)
    result = gate * tl.sigmoid(gate) * up
    tl.store(gated + token * width + columns, result.to(gated.dtype.element_ty), mask=is_column)


def silu_gated(projected: Tensor) -> Tensor:
    """SiLU of the first half of each row times the second. (T, 2 I), contiguous, to (T, I)."""
    tokens, width = len(projected), projected.shape[1] // 2
    gated = projected.new_empty(tokens, width)
    _gate_kernel[(tokens, triton.cdiv(width, _ELEMENTS_AT_ONCE))](
        projected, gated, width, TILE=_ELEMENTS_AT_ONCE, num_warps=4
    )
    return gated
