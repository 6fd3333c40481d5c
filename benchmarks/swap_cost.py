"""Copies of blocks to the host's swap pool and back, over a plain copy of as many bytes.

Blocks are taken at random, as a preempted sequence's are; on the host they are a run, or, after the
pool has been used for long, scattered. On a CPU the two pools share one memory. One thread.

    python -m benchmarks.swap_cost
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import median
from time import perf_counter

import torch

from benchmarks.report import report
from kvscope_engine.model.kv_cache import KVCache, KVLayout, LayerShape
from kvscope_engine.model.swap_space import SwapSpace

REPETITIONS = 15
COPIED_BYTES = 96 * 2**20


@dataclass(frozen=True)
class Shape:
    """K and V of a model, in blocks of 16 tokens."""

    name: str
    layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype = torch.bfloat16


SHAPES = (
    Shape("Qwen3-0.6B", 28, 8, 128),
    Shape("Llama-3.1-8B", 32, 8, 128),
    Shape("a tiny one", 4, 4, 64),
)


def seconds_of(action: Callable[[], None]) -> float:
    """Median; the first two runs warm up."""
    times = []
    for _ in range(REPETITIONS + 2):
        start = perf_counter()
        action()
        times.append(perf_counter() - start)
    return median(times[2:])


def measure(shape: Shape, device: torch.device) -> dict[str, float]:
    """GB/s of a plain copy, and each copy's share of that."""
    layer = LayerShape(shape.num_kv_heads, shape.head_dim)
    layout = KVLayout(layers=(layer,) * shape.layers, block_size=16, dtype=shape.dtype)
    count = max(1, COPIED_BYTES // layout.bytes_per_block)
    cache = KVCache(layout, 2 * count, device)
    space = SwapSpace(cache, 2 * count)
    random = Random(0)
    blocks = random.sample(range(2 * count), count)
    run, scattered = list(range(count)), random.sample(range(2 * count), count)
    space.swap_out(list(range(2 * count)), list(range(2 * count)))  # touches all of the host's
    size = count * layout.bytes_per_block
    here = torch.ones(size, dtype=torch.uint8, device=device)
    there = torch.ones(size, dtype=torch.uint8, pin_memory=device.type == "cuda")

    def plain() -> None:
        there.copy_(here)
        if device.type == "cuda":
            torch.cuda.synchronize()

    seconds = seconds_of(plain)
    copies = {
        "out": lambda: space.swap_out(blocks, run),
        "in": lambda: space.swap_in(run, blocks),
        "out_scattered": lambda: space.swap_out(blocks, scattered),
        "in_scattered": lambda: space.swap_in(scattered, blocks),
    }
    shares = {name: seconds / seconds_of(copy) for name, copy in copies.items()}
    return {"block_bytes": layout.bytes_per_block, "plain_gb_s": size / seconds / 1e9, **shares}


def main() -> None:
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = {shape.name: measure(shape, device) for shape in SHAPES}
    report("swap_cost", rows, device=str(device))


if __name__ == "__main__":
    main()
