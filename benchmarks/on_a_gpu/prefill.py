"""The prefill kernel's rate against that of a matrix product, with torch's own attention beside it.

torch's reads contiguous K and V of whole prompts; ours reads blocks.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from benchmarks.on_a_gpu.attention import BLOCK_SIZE, DEVICE, QUERY_HEADS, SHAPE, scattered
from benchmarks.on_a_gpu.ceilings import Ceilings
from benchmarks.on_a_gpu.clock import device_seconds
from benchmarks.on_a_gpu.report import Figure
from kvscope_engine.model.attention.backend import LayerOptions
from kvscope_engine.model.attention.triton.backend import TritonAttention
from kvscope_engine.model.attention.triton.plan import PREFILL_TILE, PrefillTiles
from kvscope_engine.model.kv_cache import FP8, KVLayout

TOKENS = 8192
"""New tokens of each batch."""


class Batch(NamedTuple):
    """Prompts of one length."""

    prompts: int
    tokens: int
    """New ones of each."""
    cached: int = 0
    """Tokens before them."""

    @property
    def operations(self) -> int:
        """Multiplications and additions of both products, of visible pairs alone."""
        pairs = self.tokens * self.cached + self.tokens * (self.tokens + 1) // 2
        return 4 * self.prompts * pairs * QUERY_HEADS * SHAPE.head_dim


BATCHES = (Batch(1, TOKENS), Batch(8, 1024), Batch(1, 2048, cached=30_720), Batch(64, 128))


def figures(ceilings: Ceilings) -> list[Figure]:
    found = []
    for batch in BATCHES:
        named = f"prefill attention, {batch.prompts} x {batch.tokens} tokens"
        if batch.cached:
            named += f" after {batch.cached}"
        for stored, name in ((torch.bfloat16, "bf16"), (FP8, "fp8")):
            rate = batch.operations / seconds(batch, stored)
            share = rate / ceilings.multiplied
            found.append(Figure(f"{named}, {name} KV, over a matrix product", share, ""))
        if not batch.cached:
            share = batch.operations / torch_seconds(batch) / ceilings.multiplied
            found.append(Figure(f"{named}, torch's own on contiguous K and V", share, ""))
    return found


def seconds(batch: Batch, stored: torch.dtype) -> float:
    layout = KVLayout(layers=(SHAPE,), block_size=BLOCK_SIZE, dtype=stored, computed=torch.bfloat16)
    cache, tables = scattered(layout, batch.prompts, batch.cached + batch.tokens)
    spans = [[number * batch.tokens, batch.tokens, batch.cached] for number in range(batch.prompts)]
    tiles = [
        [number, first]
        for number in range(batch.prompts)
        for first in range(0, batch.tokens, PREFILL_TILE)
    ]
    placed = PrefillTiles(
        tables,
        torch.tensor(spans, dtype=torch.int32, device=DEVICE),
        torch.tensor(tiles, dtype=torch.int32, device=DEVICE),
    )
    attention = TritonAttention(cache, None, placed)
    rows = batch.prompts * batch.tokens
    query = torch.randn(1, rows, QUERY_HEADS, SHAPE.head_dim, device=DEVICE).bfloat16()
    query = query.transpose(1, 2)
    options = LayerOptions(0, None, None, None)
    return device_seconds(lambda: attention.attend(query, query, query, options))


def torch_seconds(batch: Batch) -> float:
    heads = (QUERY_HEADS, SHAPE.num_kv_heads, SHAPE.num_kv_heads)
    query, key, value = (
        torch.randn(batch.prompts, count, batch.tokens, SHAPE.head_dim, device=DEVICE).bfloat16()
        for count in heads
    )
    return device_seconds(
        lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    )
