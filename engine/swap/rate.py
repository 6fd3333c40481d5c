"""A rate that follows what was measured last: moving sums of amounts and of what they took."""

DECAY = 0.9
"""What is left of a measurement's weight when the next one comes: some ten of them count."""


class Rate:
    """Amount per unit; None until something was measured. Larger measurements weigh more."""

    def __init__(self) -> None:
        self._amount = 0.0
        self._units = 0.0

    @property
    def value(self) -> float | None:
        return self._amount / self._units if self._units > 0 else None

    def observe(self, amount: float, units: float) -> None:
        """One more measurement, neither of them negative; one without units is ignored."""
        if units > 0:
            self._amount = DECAY * self._amount + amount
            self._units = DECAY * self._units + units
