"""The decode kernel's bandwidth against that of a plain copy on the same device."""

import random
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from benchmarks.on_a_gpu.ceilings import Ceilings
from benchmarks.on_a_gpu.clock import device_seconds
from benchmarks.on_a_gpu.report import Figure
from kvscope_engine.model.attention.backend import LayerOptions
from kvscope_engine.model.attention.triton.backend import static_attention
from kvscope_engine.model.kv_cache import FP8, KVCache, KVLayout, LayerShape

DEVICE = torch.device("cuda")
ROWS = (1, 4, 16, 64, 256)
CONTEXTS = (1024, 8192, 32768)
BLOCK_SIZE = 16
SHAPE = LayerShape(8, 128)
QUERY_HEADS = 32
"""Those of Llama 3 8B."""
UNCACHED_BYTES = 1 << 29
"""Several times the L2 cache: calls go round layers until they have read as much."""
TARGET = 0.85
TARGET_AT = (64, 8192, torch.bfloat16)


def figures(ceilings: Ceilings) -> list[Figure]:
    found = []
    for stored, name in ((torch.bfloat16, "bf16"), (FP8, "fp8")):
        for rows, context in product(ROWS, CONTEXTS):
            share = kv_bandwidth(rows, context, stored) / ceilings.copied
            target = TARGET if (rows, context, stored) == TARGET_AT else None
            named = f"decode attention, {rows} x {context} tokens, {name} KV, over a copy"
            found.append(Figure(named, share, "", target, "higher"))
    return found


def kv_bandwidth(rows: int, context: int, stored: torch.dtype) -> float:
    """Bytes of K and V a second, over scattered blocks."""
    one = KVLayout(layers=(SHAPE,), block_size=BLOCK_SIZE, dtype=stored, computed=torch.bfloat16)
    read = rows * context * one.bytes_per_token
    layers = max(1, -(-UNCACHED_BYTES // read))
    layout = KVLayout(
        layers=(SHAPE,) * layers, block_size=BLOCK_SIZE, dtype=stored, computed=torch.bfloat16
    )
    cache, tables = scattered(layout, rows, context)
    contexts = torch.full((rows,), context, dtype=torch.int32, device=DEVICE)
    attention = static_attention(cache, tables, contexts, max(CONTEXTS))  # of an engine
    query = torch.randn(1, QUERY_HEADS, rows, SHAPE.head_dim, device=DEVICE).bfloat16()
    options = [LayerOptions(layer, None, None, None) for layer in range(layers)]

    def attend() -> None:
        for layer in options:
            attention.attend(query, query, query, layer)

    # As a graph, as in the engine: at small sizes a launch takes Python longer than the device.
    return layers * read / device_seconds(captured(attend), calls=max(1, 20 // layers))


def scattered(layout: KVLayout, rows: int, context: int) -> tuple[KVCache, Tensor]:
    """A cache of random K and V, and the block tables of rows whose blocks lie anywhere in it."""
    blocks = -(-context // layout.block_size)
    cache = KVCache(layout, rows * blocks, DEVICE)
    drawn = torch.randn(min(1024, rows * blocks), *cache.blocks[0][0].shape[1:], device=DEVICE)
    drawn = drawn.to(layout.dtype)
    for pair in cache.blocks:
        for tensor in pair:
            for chunk in tensor.split(len(drawn)):  # type: ignore[no-untyped-call]
                chunk.copy_(drawn[: len(chunk)])
    ids = list(range(rows * blocks))
    random.Random(0).shuffle(ids)
    return cache, torch.tensor(ids, dtype=torch.int32, device=DEVICE).view(rows, blocks)


def captured(call: Callable[[], None]) -> Callable[[], object]:
    """The same work as a CUDA graph."""
    for _ in range(2):  # compiles
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay
