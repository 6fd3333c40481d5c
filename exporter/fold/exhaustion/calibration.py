"""What the model says at each horizon means: by its outcomes, and by what followed idleness."""

import math
from itertools import accumulate

from exporter.fold.exhaustion.correction import State
from exporter.fold.exhaustion.horizons import FIRST_IDLE, FIRST_WEIGHTS, HORIZONS
from exporter.fold.exhaustion.idleness import Idleness
from exporter.fold.exhaustion.outcomes import Outcomes

INTERVAL_SECONDS = 5.0
"""Between two forecasts that are remembered and judged."""


class Calibration:
    """Judges forecasts, and says what such forecasts have turned out to mean."""

    def __init__(self) -> None:
        self._outcomes = [
            Outcomes(horizon, INTERVAL_SECONDS, weights)
            for horizon, weights in zip(HORIZONS, FIRST_WEIGHTS, strict=True)
        ]
        self._idleness = [
            Idleness(horizon, first) for horizon, first in zip(HORIZONS, FIRST_IDLE, strict=True)
        ]
        self._exhausted_at = -math.inf

    def exhausted(self, now: float) -> None:
        """The pool could not serve a running sequence."""
        self._exhausted_at = now
        for outcomes, idleness in zip(self._outcomes, self._idleness, strict=True):
            outcomes.happened(now)
            idleness.happened(now)

    def idles(self, now: float, idle: bool) -> None:
        """Whether nothing runs and nothing waits."""
        for idleness in self._idleness:
            if idle:
                idleness.begins(now)
            else:
                idleness.ends(now)

    def forget(self) -> None:
        """Batches were lost: whether the pool was exhausted is not known."""
        self._exhausted_at = -math.inf
        for outcomes, idleness in zip(self._outcomes, self._idleness, strict=True):
            outcomes.forget()
            idleness.forget()

    def judge(self, now: float) -> None:
        """Learn from what has passed since the last time."""
        for outcomes, idleness in zip(self._outcomes, self._idleness, strict=True):
            outcomes.judge(now)
            idleness.judge(now)

    def remember(self, now: float, model: list[float], fullness: float, waiting: bool) -> None:
        """Keep what the model says now, to judge it later."""
        for index, (outcomes, said) in enumerate(zip(self._outcomes, model, strict=True)):
            outcomes.forecast(now, said, self._state(now, HORIZONS[index], fullness, waiting))

    def busy(
        self, now: float, model: list[float], fullness: float, waiting: bool
    ) -> tuple[float, ...]:
        """What the model's word means; never less for a longer horizon."""
        means = (
            outcomes.calibrated(said, self._state(now, horizon, fullness, waiting))
            for horizon, outcomes, said in zip(HORIZONS, self._outcomes, model, strict=True)
        )
        return tuple(accumulate(means, max))

    def idle(self, now: float) -> tuple[float, ...] | None:
        """While nothing runs and nothing waits; None: when that began is not known."""
        if not all(idleness.is_known for idleness in self._idleness):
            return None
        return tuple(accumulate((each.probability(now) for each in self._idleness), max))

    def _state(self, now: float, horizon: int, fullness: float, waiting: bool) -> State:
        return State(
            recently=math.exp((self._exhausted_at - now) / horizon),
            fullness=2 * max(-0.5, fullness - 0.9),
            waiting=float(waiting),
        )
