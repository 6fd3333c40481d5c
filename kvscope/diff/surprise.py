"""The distance between two figures, measured by how much each of them varies by itself.

A side is cut into equal parts, and each figure is computed again without each of them. The change
is the figure's own variation (the jackknife's standard error). A surprise of 4 is a
difference of four such errors, behind what is too small to matter to anyone.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

T = TypeVar("T")

PARTS = 10
FEWEST_SLICES = 6
"""A minute; less says nothing about variation."""
SURPRISING = 4.0
"""With ten parts, one figure in a few thousand gets there by chance."""
MOST = 99.0
"""More says nothing: the figures hardly vary."""
_TOO_SMALL = 0.1
"""Share of the larger figure; a smaller difference does not count."""
_LEAST_ERROR = 0.01
"""Share of the larger figure: the resolution of what is counted in ten seconds."""


class Estimate(NamedTuple):
    """A figure of one side."""

    value: float
    error: float
    """Its own variation."""


def estimate(slices: Sequence[T], figure: Callable[[Sequence[T]], float | None]) -> Estimate | None:
    """None: the slices do not determine the figure, or only one part of them does."""
    whole = figure(slices)
    if whole is None or len(slices) < FEWEST_SLICES:
        return None
    parts = min(PARTS, len(slices))
    edges = [len(slices) * number // parts for number in range(parts + 1)]
    without = [
        value
        for begin, end in pairwise(edges)
        if (value := figure([*slices[:begin], *slices[end:]])) is not None
    ]
    if len(without) < 2:
        return None
    mean = sum(without) / len(without)
    squares = sum((value - mean) ** 2 for value in without)
    return Estimate(whole, math.sqrt(squares * (len(without) - 1) / len(without)))


def surprise(a: Estimate, b: Estimate, floor: float) -> float:
    """floor: the least difference that matters, in the figure's unit."""
    larger = max(abs(a.value), abs(b.value))
    beyond = abs(a.value - b.value) - max(floor, _TOO_SMALL * larger)
    if beyond <= 0:
        return 0.0
    return min(MOST, beyond / max(math.hypot(a.error, b.error), _LEAST_ERROR * larger))
