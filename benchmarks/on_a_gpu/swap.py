"""Copies to the host's pinned pool and back, over a plain pinned copy."""

import torch

from benchmarks.on_a_gpu.report import Figure
from benchmarks.swap_cost import SHAPES, measure

TARGET = 0.8


def figures() -> list[Figure]:
    found = []
    for shape in SHAPES:
        row = measure(shape, torch.device("cuda"))
        found.append(Figure(f"plain pinned copy, {shape.name}", row["plain_gb_s"], "GB/s"))
        for way in ("out", "in", "out_scattered", "in_scattered"):
            named = f"swap {way.replace('_', ', ')}, {shape.name}, over a plain copy"
            found.append(Figure(named, row[way], "", TARGET, "higher"))
    return found
