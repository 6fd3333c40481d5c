"""The card's own rates: a plain copy and a matrix product. All others are held to these."""

from typing import NamedTuple

import torch

from benchmarks.on_a_gpu.clock import device_seconds
from benchmarks.on_a_gpu.report import Figure

COPIED = 1 << 32
PRODUCT = 8192


class Ceilings(NamedTuple):
    """Measured on the card that all else runs on."""

    copied: float
    """Bytes a second, read and written, of a copy that no cache holds."""
    multiplied: float
    """Floating-point operations a second of a large product in bf16."""


def measure() -> Ceilings:
    source = torch.randint(0, 255, (COPIED,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * COPIED / device_seconds(lambda: target.copy_(source))
    left, right = (
        torch.randn(PRODUCT, PRODUCT, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    )
    out = torch.empty_like(left)
    seconds = device_seconds(lambda: torch.mm(left, right, out=out))
    return Ceilings(copied, 2 * PRODUCT**3 / seconds)


def figures(ceilings: Ceilings) -> list[Figure]:
    return [
        Figure("copy on the device, read and written", ceilings.copied / 1e12, "TB/s"),
        Figure("matrix product in bf16", ceilings.multiplied / 1e12, "TFLOP/s"),
    ]
