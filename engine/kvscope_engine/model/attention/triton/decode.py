"""Attention of one new token a row over its pages, split over the row's length.

Every program takes the query heads of one KV head over one split of one row's keys, so K and V are
read once for all heads of the group. A second kernel joins the splits. Source: Dao et al. 2023
(Flash-Decoding); pages: Kwon et al. 2023 (PagedAttention), section 4.1.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvscope_engine.model.attention.triton.launch import PagedLayer, dot_type, power_of_two
from kvscope_engine.model.attention.triton.plan import Splitting
from kvscope_engine.model.attention.triton.tile import fold_tile, operand, tile_offsets, tile_scores

_JOINED_AT_ONCE = 16
"""Splits; most steps have no more."""


# Not recompiled for new values or alignments of these: they change from step to step.
@triton.jit(
    do_not_specialize=[
        *("window", "table_row_stride", "table_stride"),
        *("splits", "filling", "fewest_tiles", "most_tiles"),
    ],
    do_not_specialize_on_alignment=["tables", "contexts"],
)
def _decode_kernel(
    query,
    keys,
    values,
    tables,
    contexts,
    output,
    logsumexp,
    scale,
    softcap,
    value_scale,
    window,
    query_row_stride,
    query_head_stride,
    table_row_stride,
    table_stride,
    block_stride,
    slot_stride,
    kv_head_stride,
    num_heads,
    splits,
    filling,
    fewest_tiles,
    most_tiles,
    GROUP: tl.constexpr,
    GROUP_TILES: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    TILE_KEYS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SPLIT: tl.constexpr,
    WINDOWED: tl.constexpr,
    SOFTCAP: tl.constexpr,
    DOT_TYPE: tl.constexpr,
):
    """Grid (H_kv * GROUP_TILES, splits, rows). Writes a split's normalized output, and its weight.

    output: (rows, H, splits, D), final without SPLIT. logsumexp: (rows, H, splits), in base 2, -inf
    for an empty split, whose output is not written; written with SPLIT.
    """
    kv_head = tl.program_id(0) // GROUP_TILES
    split = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    head_in_group = tl.program_id(0) % GROUP_TILES * TILE_HEADS + tl.arange(0, TILE_HEADS)
    heads = kv_head * GROUP + head_in_group
    is_head = head_in_group < GROUP
    dims = tl.arange(0, PADDED_DIM)
    is_dim = dims < HEAD_DIM
    place = (row * num_heads + heads) * splits + split

    # Keys [low, context) are seen; the tiles that hold them are dealt out to the splits evenly. A
    # row too short for all of them takes the first few, as partial outputs are memory traffic too.
    context = tl.load(contexts + row)
    low = 0
    if WINDOWED:
        low = tl.maximum(context - window, 0)
    first_tile = low // TILE_KEYS
    end_tile = tl.cdiv(context, TILE_KEYS)
    all_tiles = end_tile - first_tile
    tiles = tl.minimum(tl.maximum(tl.cdiv(all_tiles, filling), fewest_tiles), most_tiles)
    tiles = tl.maximum(tiles, tl.cdiv(all_tiles, splits))
    begin = first_tile + split * tiles
    end = tl.minimum(begin + tiles, end_tile)
    if begin >= end:
        tl.store(logsumexp + place, float("-inf"), mask=is_head)
        return

    offsets = row * query_row_stride + heads[:, None] * query_head_stride + dims[None, :]
    is_element = is_head[:, None] & is_dim[None, :]
    one_token = operand(tl.load(query + offsets, mask=is_element, other=0.0), DOT_TYPE)
    best = tl.full([TILE_HEADS], float("-inf"), tl.float32)
    total = tl.zeros([TILE_HEADS], tl.float32)
    sums = tl.zeros([TILE_HEADS, PADDED_DIM], tl.float32)
    table = tables + row * table_row_stride
    for tile in range(begin, end):
        positions = tile * TILE_KEYS + tl.arange(0, TILE_KEYS)
        visible = positions < context
        if WINDOWED:
            visible = visible & (positions >= low)
        slots = tile_offsets(
            table, table_stride, positions, visible, block_stride, slot_stride, BLOCK_SIZE
        )
        slots += kv_head * kv_head_stride
        places = slots[:, None] + dims[None, :]
        is_kept = visible[:, None] & is_dim[None, :]
        key_tile = tl.load(keys + places, mask=is_kept, other=0.0)
        scores = tile_scores(one_token, key_tile, visible[None, :], scale, softcap, SOFTCAP)
        value_tile = tl.load(values + places, mask=is_kept, other=0.0).to(DOT_TYPE)
        if values.dtype.element_ty.primitive_bitwidth == 8:
            # Without this Triton moves the conversion behind the transposition through shared
            # memory, which then reads single bytes.
            even, odd = tl.split(tl.reshape(value_tile, [TILE_KEYS, PADDED_DIM // 2, 2]))
            value_tile = tl.reshape(tl.join(even, odd), [TILE_KEYS, PADDED_DIM])
        best, total, sums = fold_tile(scores, value_tile, best, total, sums)

    attended = sums * (value_scale / total)[:, None]
    tl.store(
        output + place[:, None] * HEAD_DIM + dims[None, :],
        attended.to(output.dtype.element_ty),
        mask=is_element,
    )
    if SPLIT:
        tl.store(logsumexp + place, best + tl.log2(total), mask=is_head)


@triton.jit(do_not_specialize=["splits"])
def _join_kernel(
    partial,
    logsumexp,
    output,
    splits,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TILE_SPLITS: tl.constexpr,
):
    """Grid (rows * H). output: (rows * H, D), the splits' outputs by their weights."""
    head = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, PADDED_DIM)
    best = float("-inf")
    total = 0.0
    sums = tl.zeros([PADDED_DIM], tl.float32)
    first = 0
    going = True
    while going:
        split = first + tl.arange(0, TILE_SPLITS)
        place = head * splits + split
        weights = tl.load(logsumexp + place, mask=split < splits, other=float("-inf"))
        is_element = (weights > float("-inf"))[:, None] & (dims < HEAD_DIM)[None, :]
        parts = tl.load(
            partial + place[:, None] * HEAD_DIM + dims[None, :], mask=is_element, other=0.0
        )
        last = tl.min(weights, 0)
        higher = tl.maximum(best, tl.max(weights, 0))  # the first split is never empty
        weights = tl.exp2(weights - higher)
        shrink = tl.exp2(best - higher)
        total = total * shrink + tl.sum(weights, 0)
        sums = sums * shrink + tl.sum(parts * weights[:, None], 0)
        best = higher
        first += TILE_SPLITS
        going = (first < splits) & (last > float("-inf"))  # behind an empty one all are empty
    tl.store(
        output + head * HEAD_DIM + dims,
        (sums / total).to(output.dtype.element_ty),
        mask=dims < HEAD_DIM,
    )


def paged_decode(
    query: Tensor,
    output: Tensor,
    layer: PagedLayer,
    tables: Tensor,
    contexts: Tensor,
    splitting: Splitting,
) -> None:
    """Each row's one token attends to the last `contexts[row]` tokens, itself included.

    query: (rows, H, D), any strides but 1 in D. output: (rows, H, D), contiguous, is written.
    tables: (rows, max_blocks) int32, any strides; entries beyond a row's context are not read.
    contexts: (rows,) int32, > 0, or the row's output is nonsense. splitting: the programs of a row.

    Launches one kernel, or two where splits > 1; takes rows * H * splits * (D + 1) float32.
    """
    rows, num_heads, head_dim = query.shape
    num_kv_heads = layer.keys.shape[2]
    group = num_heads // num_kv_heads
    # tl.dot needs at least 16 rows; groups above 64 heads are split, or registers would spill.
    tile_heads = min(64, max(16, power_of_two(group)))
    group_tiles = triton.cdiv(group, tile_heads)
    shape = layer.decode_shape(query.itemsize)
    splits = splitting.splits
    partial, logsumexp = output, output
    if splits > 1:
        partial = torch.empty(
            (rows, num_heads, splits, head_dim), dtype=torch.float32, device=query.device
        )
        logsumexp = torch.empty((rows, num_heads, splits), dtype=torch.float32, device=query.device)
    padded_dim = max(16, power_of_two(head_dim))
    _decode_kernel[(num_kv_heads * group_tiles, splits, rows)](
        query,
        layer.keys,
        layer.values,
        tables,
        contexts,
        partial,
        logsumexp,
        layer.score_scale,
        layer.softcap,
        layer.kv_scale,
        layer.window,
        query.stride(0),
        query.stride(1),
        tables.stride(0),
        tables.stride(1),
        *layer.keys.stride()[:3],
        num_heads,
        splits,
        splitting.filling,
        triton.cdiv(splitting.fewest_keys, shape.tile_keys),
        triton.cdiv(splitting.most_keys, shape.tile_keys),
        GROUP=group,
        GROUP_TILES=group_tiles,
        TILE_HEADS=tile_heads,
        TILE_KEYS=shape.tile_keys,
        HEAD_DIM=head_dim,
        PADDED_DIM=padded_dim,
        BLOCK_SIZE=layer.keys.shape[1],
        SPLIT=splits > 1,
        WINDOWED=layer.window > 0,
        SOFTCAP=layer.softcap > 0,
        DOT_TYPE=dot_type(query.dtype, layer.keys.dtype),
        num_warps=shape.num_warps,
        num_stages=shape.num_stages,
    )
    if splits > 1:
        _join_kernel[(rows * num_heads,)](
            partial,
            logsumexp,
            output,
            splits,
            HEAD_DIM=head_dim,
            PADDED_DIM=padded_dim,
            TILE_SPLITS=_JOINED_AT_ONCE,
            num_warps=4,
        )
