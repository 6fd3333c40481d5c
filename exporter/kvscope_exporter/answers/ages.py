"""Blocks by age: counts from a histogram, or of blocks that are still resident."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

from kvscope_exporter.state import Histogram
from kvscope_exporter.state.buckets import RESIDENCY_SECONDS
from kvscope_exporter.state.cache.blocks import NEVER

_CHUNK = 4096
"""Times sorted at once: more would hold the interpreter, and with it a step, too long."""


class AgeClass(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks up to an age, and above that of the previous class."""

    up_to_seconds: float | None
    """None: no upper bound."""
    blocks: int


class FinishedAges(msgspec.Struct, frozen=True, kw_only=True):
    """Completed times of all blocks since the exporter began to watch."""

    classes: list[AgeClass]
    blocks: int
    mean_seconds: float | None
    """None: no blocks."""
    unknown_blocks: int
    """Excluded: their time began before the exporter watched, or in lost events."""


class PresentAges(msgspec.Struct, frozen=True, kw_only=True):
    """Ongoing times of all blocks that are resident now."""

    classes: list[AgeClass]
    blocks: int
    unknown_blocks: int
    """Excluded: their time began before the exporter watched, or in lost events."""


def finished(histogram: Histogram, unknown_blocks: int) -> FinishedAges:
    """Counts of a residency histogram at our bounds."""
    counts = histogram.counts_at(RESIDENCY_SECONDS)
    blocks = sum(counts)
    return FinishedAges(
        classes=_classes(counts),
        blocks=blocks,
        mean_seconds=histogram.total / blocks if blocks else None,
        unknown_blocks=unknown_blocks,
    )


def present(times_ns: Sequence[int], now_ns: int, unknown_blocks: int) -> PresentAges:
    """Ages since these times, one of each block; those at NEVER are left out."""
    starts = [max(0, now_ns - int(bound * 1e9)) for bound in RESIDENCY_SECONDS]
    counts = [0] * (len(starts) + 1)
    for begin in range(0, len(times_ns), _CHUNK):
        ordered = sorted(times_ns[begin : begin + _CHUNK])
        end = len(ordered)
        for place, start in enumerate((*starts, NEVER + 1)):
            first = bisect_left(ordered, start, 0, end)
            counts[place] += end - first
            end = first
    return PresentAges(classes=_classes(counts), blocks=sum(counts), unknown_blocks=unknown_blocks)


def _classes(counts: Iterable[int]) -> list[AgeClass]:
    bounds: list[float | None] = [*RESIDENCY_SECONDS, None]
    return [
        AgeClass(up_to_seconds=bound, blocks=count)
        for bound, count in zip(bounds, counts, strict=True)
    ]
