"""Attention of many new tokens a sequence over its pages, causal from the sequence's position on.

Every program takes one tile of a span's tokens under one query head; the heads of a group share K
and V through the L2 cache. Source: Dao 2023 (FlashAttention-2).
"""

import triton
import triton.language as tl
from torch import Tensor

from engine.model.attention.triton.launch import PagedLayer, dot_type, power_of_two
from engine.model.attention.triton.plan import PREFILL_TILE, PrefillTiles
from engine.model.attention.triton.tile import fold_tile, tile_offsets, tile_scores


@triton.jit(do_not_specialize=["window", "table_row_stride"])
def _prefill_kernel(
    query,
    keys,
    values,
    tables,
    spans,
    tiles,
    output,
    scale,
    softcap,
    value_scale,
    window,
    query_token_stride,
    query_head_stride,
    table_row_stride,
    block_stride,
    slot_stride,
    kv_head_stride,
    num_heads,
    GROUP: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    TILE_KEYS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOWED: tl.constexpr,
    SOFTCAP: tl.constexpr,
    DOT_TYPE: tl.constexpr,
):
    """Grid (tiles, H). output: (T, H, D). spans: (S, 3) begin, count, start. tiles: (n, 2)."""
    span = tl.load(tiles + tl.program_id(0) * 2)
    first = tl.load(tiles + tl.program_id(0) * 2 + 1)
    head = tl.program_id(1)
    begin = tl.load(spans + span * 3)
    count = tl.load(spans + span * 3 + 1)
    start = tl.load(spans + span * 3 + 2)
    kv_head = head // GROUP

    tokens = first + tl.arange(0, TILE_TOKENS)
    dims = tl.arange(0, PADDED_DIM)
    is_dim = dims < HEAD_DIM
    is_element = (tokens < count)[:, None] & is_dim[None, :]
    rows = (begin + tokens).to(tl.int64)[:, None]
    queries = tl.load(
        query + rows * query_token_stride + head * query_head_stride + dims[None, :],
        mask=is_element,
        other=0.0,
    ).to(DOT_TYPE)

    # Keys [low, end): from the first that the tile's first token sees to its last token's own.
    end = start + tl.minimum(first + TILE_TOKENS, count)
    low = 0
    if WINDOWED:
        low = tl.maximum(start + first + 1 - window, 0)
    best = tl.full([TILE_TOKENS], float("-inf"), tl.float32)
    total = tl.zeros([TILE_TOKENS], tl.float32)
    sums = tl.zeros([TILE_TOKENS, PADDED_DIM], tl.float32)
    own = start + tokens
    table = tables + span.to(tl.int64) * table_row_stride
    for tile in range(low // TILE_KEYS, tl.cdiv(end, TILE_KEYS)):
        positions = tile * TILE_KEYS + tl.arange(0, TILE_KEYS)
        written = positions < end
        slots = tile_offsets(table, 1, positions, written, block_stride, slot_stride, BLOCK_SIZE)
        slots += kv_head * kv_head_stride
        key_tile = tl.load(
            keys + slots[None, :] + dims[:, None],
            mask=written[None, :] & is_dim[:, None],
            other=0.0,
        )
        visible = positions[None, :] <= own[:, None]
        if WINDOWED:
            visible = visible & (positions[None, :] > own[:, None] - window)
        scores = tile_scores(queries, key_tile, visible, scale, softcap, SOFTCAP)
        value_tile = tl.load(
            values + slots[:, None] + dims[None, :],
            mask=written[:, None] & is_dim[None, :],
            other=0.0,
        ).to(DOT_TYPE)
        best, total, sums = fold_tile(scores, value_tile, best, total, sums)

    # Rows beyond the span may have seen nothing, and are not stored.
    attended = sums * (value_scale / tl.where(total > 0.0, total, 1.0))[:, None]
    tl.store(
        output + (rows * num_heads + head) * HEAD_DIM + dims[None, :],
        attended.to(output.dtype.element_ty),
        mask=is_element,
    )


def paged_prefill(query: Tensor, output: Tensor, layer: PagedLayer, tiles: PrefillTiles) -> None:
    """Each span's tokens attend to all of their sequence up to themselves; K and V are written.

    query: (T, H, D), the whole flattened batch, any strides but 1 in D. output: (T, H, D),
    contiguous; the spans' rows are written. Launches one kernel, takes no memory.
    """
    num_heads, head_dim = query.shape[1:]
    shape = layer.prefill_shape(query.itemsize)
    _prefill_kernel[(tiles.num_tiles, num_heads)](
        query,
        layer.keys,
        layer.values,
        tiles.tables,
        tiles.spans,
        tiles.tiles,
        output,
        layer.score_scale,
        layer.softcap,
        layer.kv_scale,
        layer.window,
        query.stride(0),
        query.stride(1),
        tiles.tables.stride(0),
        *layer.keys.stride()[:3],
        num_heads,
        GROUP=num_heads // layer.keys.shape[2],
        TILE_TOKENS=PREFILL_TILE,
        TILE_KEYS=shape.tile_keys,
        HEAD_DIM=head_dim,
        PADDED_DIM=max(16, power_of_two(head_dim)),
        BLOCK_SIZE=layer.keys.shape[1],
        WINDOWED=layer.window > 0,
        SOFTCAP=layer.softcap > 0,
        DOT_TYPE=dot_type(query.dtype),
        num_warps=shape.num_warps,
        num_stages=shape.num_stages,
    )
