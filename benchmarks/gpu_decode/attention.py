"""The decode kernel's bandwidth against that of a plain copy on the same device."""

import random
import sys
from collections.abc import Callable
from itertools import product

import torch

from benchmarks.gpu_decode.clock import device_seconds
from benchmarks.gpu_decode.report import Figure
from engine.model.attention.backend import LayerOptions
from engine.model.attention.triton.backend import static_attention
from engine.model.attention.triton.launch import PagedLayer, ProgramShape
from engine.model.kv_cache import FP8, KVCache, KVLayout, LayerShape

ROWS = 64
CONTEXT = 8192
BLOCK_SIZE = 16
SHAPE = LayerShape(8, 128)
QUERY_HEADS = 32
"""Those of Llama 3 8B."""
COPIED = 1 << 31
TARGET = 0.85


def copy_bandwidth() -> float:
    """Bytes a second, read and written, of a copy that no cache holds."""
    source = torch.randint(0, 255, (COPIED,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPIED / device_seconds(lambda: target.copy_(source))


def figures(copied: float) -> list[Figure]:
    """copied: bytes a second of a copy."""
    found = []
    for stored, name in ((torch.bfloat16, "bf16"), (FP8, "fp8")):
        share = kv_bandwidth(stored) / copied
        target = TARGET if stored == torch.bfloat16 else None
        found.append(
            Figure(
                f"decode attention, {ROWS} rows of {CONTEXT} tokens, {name} KV, over a copy",
                *(share, "", target, "higher"),
            )
        )
    return found


def sweep(copied: float) -> list[Figure]:
    """The same with other shapes of the decode kernel's programs."""
    found = []
    chosen = PagedLayer.decode_shape
    try:
        for tile_keys, warps, stages in product((32, 64, 128), (4, 8), (3, 5, 7)):
            shape = ProgramShape(tile_keys, warps, stages)
            PagedLayer.decode_shape = _always(shape)  # type: ignore[method-assign, assignment]
            try:
                share = kv_bandwidth(torch.bfloat16) / copied
            except RuntimeError as error:  # more shared memory than there is
                print(f"{shape}: {error}", file=sys.stderr)
                continue
            found.append(Figure(f"decode attention with {shape}", share, ""))
    finally:
        PagedLayer.decode_shape = chosen  # type: ignore[method-assign]
    return found


def _always(shape: ProgramShape) -> Callable[[PagedLayer], ProgramShape]:
    return lambda layer: shape


def kv_bandwidth(stored: torch.dtype) -> float:
    """Bytes of K and V a second, over scattered blocks."""
    layout = KVLayout(layers=(SHAPE,), block_size=BLOCK_SIZE, dtype=stored, computed=torch.bfloat16)
    blocks = CONTEXT // BLOCK_SIZE
    cache = KVCache(layout, ROWS * blocks, torch.device("cuda"))
    for tensor in cache.blocks[0]:
        for chunk in tensor.split(1024):  # type: ignore[no-untyped-call]
            chunk.copy_(torch.randn(chunk.shape, device="cuda"))
    ids = list(range(ROWS * blocks))
    random.Random(0).shuffle(ids)
    tables = torch.tensor(ids, dtype=torch.int32, device="cuda").view(ROWS, blocks)
    contexts = torch.full((ROWS,), CONTEXT, dtype=torch.int32, device="cuda")
    attention = static_attention(cache, tables, contexts, CONTEXT)
    query = torch.randn(1, QUERY_HEADS, ROWS, SHAPE.head_dim, device="cuda").bfloat16()
    options = LayerOptions(0, None, None, None)
    seconds = device_seconds(lambda: attention.attend(query, query, query, options))
    return ROWS * CONTEXT * layout.bytes_per_token / seconds
