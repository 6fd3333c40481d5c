"""Decides whether swapping a victim costs less than recomputing it, from past costs of both.

Swapping: all of its blocks are copied out, and those that the prefix cache will not hold are copied
back. Recomputing: the tokens of those same blocks go through the model once more.
"""

from typing import NamedTuple

from kvscope_events.vocabulary import SwapDirection

DECAY = 0.9
"""Remaining weight of a measurement when the next one comes: about ten of them count."""


class Rate:
    """Amount per unit; None until something was measured. Larger measurements weigh more."""

    def __init__(self) -> None:
        self._amount = 0.0
        self._units = 0.0

    @property
    def value(self) -> float | None:
        return self._amount / self._units if self._units > 0 else None

    def observe(self, amount: float, units: float) -> None:
        """Add a measurement, both values not negative; one without units is ignored."""
        if units > 0:
            self._amount = DECAY * self._amount + amount
            self._units = DECAY * self._units + units


class Costs(NamedTuple):
    """Estimates for one victim, in nanoseconds of the engine's time."""

    swap_ns: int
    recompute_ns: int

    @property
    def prefers_swap(self) -> bool:
        return self.swap_ns < self.recompute_ns


class Chooser:
    """Three rates and a share, each a moving average of measurements."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._copied: dict[SwapDirection, Rate] = {"out": Rate(), "in": Rate()}  # blocks per ns
        self._computed = Rate()  # tokens per ns
        self._found = Rate()  # share of victims' tokens that they found again when they resumed

    def copied(self, direction: SwapDirection, blocks: int, duration_ns: int) -> None:
        """Blocks were copied in this time."""
        self._copied[direction].observe(blocks, duration_ns)

    def computed(self, tokens: int, duration_ns: int) -> None:
        """A step with prefill computed this many tokens in this time."""
        self._computed.observe(tokens, duration_ns)

    def resumed(self, found_tokens: int, discarded_tokens: int) -> None:
        """A victim resumed and found this many of its tokens in the prefix cache."""
        self._found.observe(found_tokens, discarded_tokens)

    def estimate(self, num_tokens: int, shared_blocks: int) -> Costs | None:
        """Costs of a victim with this many computed tokens; None: not measured yet.

        shared_blocks: those of its blocks that others refer to as well, which stay.
        """
        out, back = self._copied["out"].value, self._copied["in"].value
        speed = self._computed.value
        if not out or not back or not speed:
            return None
        blocks = -(-num_tokens // self._block_size)
        share = self._found.value or 0.0
        found = max(shared_blocks, share * num_tokens / self._block_size)
        lost_tokens = max(0.0, num_tokens - found * self._block_size)
        return Costs(
            swap_ns=round(blocks / out + max(0.0, blocks - found) / back),
            recompute_ns=round(lost_tokens / speed),
        )
