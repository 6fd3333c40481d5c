"""Calibrates the model at each horizon, by the outcomes of its forecasts and of idle stretches."""

import math
from itertools import accumulate

from exporter.fold.exhaustion.correction import State
from exporter.fold.exhaustion.horizons import FIRST_WEIGHTS, HORIZONS
from exporter.fold.exhaustion.idleness import Idleness
from exporter.fold.exhaustion.outcomes import Outcomes

INTERVAL_SECONDS = 5.0
"""Seconds between two forecasts that are remembered and judged."""


class Calibration:
    """Judges forecasts, and turns new ones into probabilities by past outcomes."""

    def __init__(self) -> None:
        self._outcomes = [
            Outcomes(horizon, INTERVAL_SECONDS, weights)
            for horizon, weights in zip(HORIZONS, FIRST_WEIGHTS, strict=True)
        ]
        self._idleness = Idleness()
        self._exhausted_at = -math.inf

    def exhausted(self, now: float) -> None:
        """The pool could not serve a running sequence."""
        self._exhausted_at = now
        self._idleness.happened(now)
        for outcomes in self._outcomes:
            outcomes.happened(now)

    def idles(self, now: float, idle: bool) -> None:
        """Whether nothing runs or waits."""
        if idle:
            self._idleness.begins(now)
        else:
            self._idleness.ends(now)

    def forget(self) -> None:
        """Batches were lost: whether the pool was exhausted is unknown."""
        self._exhausted_at = -math.inf
        self._idleness.forget()
        for outcomes in self._outcomes:
            outcomes.forget()

    def judge(self, now: float) -> None:
        """Learn from what has happened since the last time."""
        self._idleness.judge(now)
        for outcomes in self._outcomes:
            outcomes.judge(now)

    def remember(self, now: float, model: list[float], fullness: float, waiting: bool) -> None:
        """Keep the model's present forecast, to judge it later."""
        for index, (outcomes, said) in enumerate(zip(self._outcomes, model, strict=True)):
            outcomes.forecast(now, said, self._state(now, HORIZONS[index], fullness, waiting))

    def busy(
        self, now: float, model: list[float], fullness: float, waiting: bool
    ) -> dict[int, float]:
        """Calibrated probabilities by horizon; never smaller for a longer one."""
        means = (
            outcomes.calibrated(said, self._state(now, horizon, fullness, waiting))
            for horizon, outcomes, said in zip(HORIZONS, self._outcomes, model, strict=True)
        )
        return dict(zip(HORIZONS, accumulate(means, max), strict=True))

    def idle(self, now: float) -> dict[int, float]:
        """The same while nothing runs or waits; without unknown horizons."""
        return self._idleness.probabilities(now)

    def _state(self, now: float, horizon: int, fullness: float, waiting: bool) -> State:
        return State(
            recently=math.exp((self._exhausted_at - now) / horizon),
            fullness=2 * max(-0.5, fullness - 0.9),
            waiting=float(waiting),
        )
