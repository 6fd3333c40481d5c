"""Attention of many new tokens a sequence over its pages, causal from the sequence's position on.

Every program takes one tile of a span's tokens under one query head; the heads of a group share K
and V through the L2 cache. Source: Dao 2023 (FlashAttention-2).
"""

import triton
import triton.language as tl
from torch import Tensor

from kvscope_engine.model.attention.triton.launch import (
    PagedLayer,
    dot_type,
    power_of_two,
    shared_bytes,
)
from kvscope_engine.model.attention.triton.plan import PREFILL_TILE, PrefillTiles
from kvscope_engine.model.attention.triton.tile import fold_tile, operand, tile_offsets, tile_scores


@triton.jit
def _fold_tiles(
    queries,
    own,
    best,
    total,
    sums,
    keys,
    values,
    table,
    first_tile,
    end_tile,
    end,
    scale,
    softcap,
    window,
    block_stride,
    slot_stride,
    MASKED: tl.constexpr,
    TILE_KEYS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOWED: tl.constexpr,
    SOFTCAP: tl.constexpr,
):
    """best, total and sums after tiles [first_tile, end_tile). keys, values: at the KV head's own.

    own: each token's position. Without MASKED every token sees all keys of these tiles.
    """
    dims = tl.arange(0, PADDED_DIM)
    is_dim = dims < HEAD_DIM
    for tile in range(first_tile, end_tile):
        positions = tile * TILE_KEYS + tl.arange(0, TILE_KEYS)
        written = tl.full([TILE_KEYS], True, tl.int1)
        if MASKED:
            written = positions < end
        slots = tile_offsets(table, 1, positions, written, block_stride, slot_stride, BLOCK_SIZE)
        places = slots[:, None] + dims[None, :]
        is_element = written[:, None] & is_dim[None, :]
        key_tile = tl.load(keys + places, mask=is_element, other=0.0)
        visible = written[None, :]
        if MASKED:
            visible = positions[None, :] <= own[:, None]
            if WINDOWED:
                visible = visible & (positions[None, :] > own[:, None] - window)
        scores = tile_scores(queries, key_tile, visible, scale, softcap, SOFTCAP)
        value_tile = tl.load(values + places, mask=is_element, other=0.0).to(queries.dtype)
        best, total, sums = fold_tile(scores, value_tile, best, total, sums)
    return best, total, sums


# Not recompiled for the arrays' alignment either: all are parts of one.
@triton.jit(
    do_not_specialize=["window", "table_row_stride"],
    do_not_specialize_on_alignment=["tables", "spans", "tiles"],
)
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
    PIECES: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    TILE_KEYS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOWED: tl.constexpr,
    SOFTCAP: tl.constexpr,
    DOT_TYPE: tl.constexpr,
):
    """Grid (tiles * PIECES, H): a program takes TILE_TOKENS of a tile's PIECES * TILE_TOKENS.

    output: (T, H, D). spans: (S, 3) begin, count, start. tiles: (n, 2).
    """
    tile = tl.program_id(0) // PIECES
    span = tl.load(tiles + tile * 2)
    first = tl.load(tiles + tile * 2 + 1) + tl.program_id(0) % PIECES * TILE_TOKENS
    head = tl.program_id(1)
    begin = tl.load(spans + span * 3)
    count = tl.load(spans + span * 3 + 1)
    start = tl.load(spans + span * 3 + 2)
    if first >= count:
        return
    kv_offset = (head // GROUP).to(tl.int64) * kv_head_stride

    tokens = first + tl.arange(0, TILE_TOKENS)
    dims = tl.arange(0, PADDED_DIM)
    is_element = (tokens < count)[:, None] & (dims < HEAD_DIM)[None, :]
    rows = (begin + tokens).to(tl.int64)[:, None]
    queries = operand(
        tl.load(
            query + rows * query_token_stride + head * query_head_stride + dims[None, :],
            mask=is_element,
            other=0.0,
        ),
        DOT_TYPE,
    )

    # Keys [low, end): from the first that the tile's first token sees to its last token's own.
    end = start + tl.minimum(first + TILE_TOKENS, count)
    end_tile = tl.cdiv(end, TILE_KEYS)
    best = tl.full([TILE_TOKENS], float("-inf"), tl.float32)
    total = tl.zeros([TILE_TOKENS], tl.float32)
    sums = tl.zeros([TILE_TOKENS, PADDED_DIM], tl.float32)
    own = start + tokens
    table = tables + span.to(tl.int64) * table_row_stride
    if WINDOWED:
        first_masked = tl.maximum(start + first + 1 - window, 0) // TILE_KEYS
    else:
        # The first token sees all of these tiles, and so do the others.
        first_masked = (start + first + 1) // TILE_KEYS
        best, total, sums = _fold_tiles(
            queries,
            own,
            best,
            total,
            sums,
            keys + kv_offset,
            values + kv_offset,
            table,
            0,
            first_masked,
            end,
            scale,
            softcap,
            window,
            block_stride,
            slot_stride,
            MASKED=False,
            TILE_KEYS=TILE_KEYS,
            HEAD_DIM=HEAD_DIM,
            PADDED_DIM=PADDED_DIM,
            BLOCK_SIZE=BLOCK_SIZE,
            WINDOWED=WINDOWED,
            SOFTCAP=SOFTCAP,
        )
    best, total, sums = _fold_tiles(
        queries,
        own,
        best,
        total,
        sums,
        keys + kv_offset,
        values + kv_offset,
        table,
        first_masked,
        end_tile,
        end,
        scale,
        softcap,
        window,
        block_stride,
        slot_stride,
        MASKED=True,
        TILE_KEYS=TILE_KEYS,
        HEAD_DIM=HEAD_DIM,
        PADDED_DIM=PADDED_DIM,
        BLOCK_SIZE=BLOCK_SIZE,
        WINDOWED=WINDOWED,
        SOFTCAP=SOFTCAP,
    )

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
    longest = tiles.tables.shape[1] * layer.keys.shape[1]
    shape = layer.prefill_shape(query.itemsize, shared_bytes(query.device), longest)
    pieces = PREFILL_TILE // shape.tile_tokens
    _prefill_kernel[(tiles.num_tiles * pieces, num_heads)](
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
        PIECES=pieces,
        TILE_TOKENS=shape.tile_tokens,
        TILE_KEYS=shape.tile_keys,
        HEAD_DIM=head_dim,
        PADDED_DIM=max(16, power_of_two(head_dim)),
        BLOCK_SIZE=layer.keys.shape[1],
        WINDOWED=layer.window > 0,
        SOFTCAP=layer.softcap > 0,
        DOT_TYPE=dot_type(query.dtype, layer.keys.dtype),
        num_warps=shape.num_warps,
        num_stages=shape.num_stages,
    )
