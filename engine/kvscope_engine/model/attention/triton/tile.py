"""Operations of both kernels on one tile of keys: locate it in the pages, score it, fold it in.

Scores are in base 2 (times log₂ e), so that exponentials are single instructions. Loads are masked:
what no query sees is never read, whatever a block's former owner left in it.
"""

import triton
import triton.language as tl


@triton.jit
def tile_offsets(
    table,
    table_stride,
    positions,
    written,
    block_stride,
    slot_stride,
    BLOCK_SIZE: tl.constexpr,
):
    """Element offsets of the KV slots of `positions`, (N,) int64. table: at its row's first block.

    written: which positions have a block at all; the others are not looked up.
    """
    block = tl.load(table + (positions // BLOCK_SIZE) * table_stride, mask=written, other=0)
    return block.to(tl.int64) * block_stride + (positions % BLOCK_SIZE) * slot_stride


@triton.jit
def operand(query, DOT_TYPE: tl.constexpr):
    """The query in the type of the products. float16 is narrower than bfloat16: its ends hold."""
    if DOT_TYPE == tl.float16:  # noqa: SIM300 - a constexpr compares itself
        query = tl.minimum(tl.maximum(query.to(tl.float32), -65504.0), 65504.0)
    return query.to(DOT_TYPE)


@triton.jit
def tile_scores(query, keys, visible, scale, softcap, SOFTCAP: tl.constexpr):
    """(M, N) float32, -inf where not visible. query: (M, D). keys: (N, D). scale: with log₂ e.

    With SOFTCAP, scale is without log₂ e and divided by softcap.
    """
    # Without "ieee" float32 is rounded to 19 bits on tensor cores; 16-bit types are exact anyway.
    scores = tl.dot(query, tl.trans(keys.to(query.dtype)), input_precision="ieee") * scale
    if SOFTCAP:
        # tanh x = 1 - 2 / (e^2x + 1), which is 1 long before e^2x = 2^64.
        doubled = tl.minimum(scores * 2.8853900817779268, 64.0)
        scores = softcap * (1.0 - 2.0 / (tl.exp2(doubled) + 1.0))
        scores = scores * 1.4426950408889634
    return tl.where(visible, scores, float("-inf"))


@triton.jit
def fold_tile(scores, values, best, total, output):
    """The online softmax after one more tile: new (best, total, output).

    scores: (M, N). values: (N, D), of the query's type. best, total: (M,). output: (M, D), not yet
    divided by total.
    """
    higher = tl.maximum(best, tl.max(scores, 1))
    # A row that has seen nothing yet has -inf for its best: subtract 0, not -inf from -inf.
    shift = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(scores - shift[:, None])
    shrink = tl.exp2(best - shift)
    total = total * shrink + tl.sum(weights, 1)
    output = output * shrink[:, None]
    output = tl.dot(weights.to(values.dtype), values, output, input_precision="ieee")
    return higher, total, output
