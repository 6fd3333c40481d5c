"""Number of blocks that would have kept most of what was evicted too early in the last minutes.

A block whose distance exceeds the pool by N would have been kept by N more blocks. These numbers
are counted in buckets whose width is at most 1/32 of the number, and exactly below 64; the answer
is the upper end of a bucket, so it is right or up to 3.2 % too high.
"""

from collections import deque
from dataclasses import dataclass, field

SLICE_NS = 10 * 10**9
SLICES = 30
"""The last 300 s, the present slice of 10 s included: 290 to 300 s."""
_MANTISSA_BITS = 6
_SHARE = (9, 10)
"""Numerator and denominator of the share that would have been kept."""


@dataclass(slots=True)
class _Slice:
    number: int
    """Time divided by the length of a slice."""
    regretted: int = 0
    """Evicted blocks that were looked up again."""
    too_small: dict[int, int] = field(default_factory=dict)
    """Blocks whose distance is known, by the upper end of the bucket."""


class Shortfall:
    """At most 30 slices, each of as many buckets as there are: 32 for each doubling of a number."""

    def __init__(self) -> None:
        self._slices: deque[_Slice] = deque()

    def clear(self) -> None:
        """Forget everything: the pool's size has changed."""
        self._slices.clear()

    def regret(self, blocks: int, time_ns: int) -> None:
        """Evicted blocks were looked up, whether or not their distance is known."""
        self._slice(time_ns).regretted += blocks

    def too_far(self, blocks_too_small: int, count: int, time_ns: int) -> None:
        """`count` blocks would have been kept by this many more, each further one by one more."""
        too_small = self._slice(time_ns).too_small
        end = blocks_too_small + count
        while blocks_too_small < end:
            upper = _upper_end(blocks_too_small)
            begin, blocks_too_small = blocks_too_small, min(upper + 1, end)
            too_small[upper] = too_small.get(upper, 0) + blocks_too_small - begin

    def blocks(self, now_ns: int) -> int | None:
        """Additional blocks that would have kept nine tenths; None: nothing regretted, or not
        known.

        For a regretted block without a distance (evicted by a reset, or beyond the horizon) no
        number of blocks is known that would have kept it.
        """
        oldest = now_ns // SLICE_NS - SLICES
        slices = [one for one in self._slices if one.number > oldest]
        total: dict[int, int] = {}
        for one in slices:
            for upper, count in one.too_small.items():
                total[upper] = total.get(upper, 0) + count
        # A block that has fallen out of the window of evicted names can still have a distance.
        regretted = max(sum(one.regretted for one in slices), sum(total.values()))
        share, whole = _SHARE
        kept = 0
        for upper in sorted(total):
            kept += total[upper]
            if kept * whole >= regretted * share:
                return upper
        return None

    def _slice(self, time_ns: int) -> _Slice:
        number = time_ns // SLICE_NS
        slices = self._slices
        if not slices or slices[-1].number < number:
            slices.append(_Slice(number))
            while slices[0].number <= number - SLICES:
                slices.popleft()
        return slices[-1]


def _upper_end(value: int) -> int:
    """The greatest number in the bucket of a number."""
    shift = value.bit_length() - _MANTISSA_BITS
    return value if shift <= 0 else ((value >> shift) + 1 << shift) - 1
