"""Substitutes for a forecast: a threshold on usage, and predict_linear on scrapes."""

from bisect import bisect_left, bisect_right

SCRAPE_SECONDS = 15.0
WINDOWS = (120.0, 300.0, 600.0)
"""Ranges of predict_linear; each load and horizon is given the one that does best on it."""
USAGE = 0.9


def usage_above(usage: float) -> float:
    """A forecast of 0 or 1 at every horizon."""
    return float(usage > USAGE)


class Scrapes:
    """Usage as Prometheus has it, and predict_linear over it as Prometheus computes it."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._values: list[float] = []
        self._lines: dict[float, tuple[int, int, float, float]] = {}

    def offer(self, seconds: float, usage: float) -> None:
        if not self._times or seconds - self._times[-1] >= SCRAPE_SECONDS:
            self._times.append(seconds)
            self._values.append(usage)

    def predict_linear(self, now: float, window: float, horizon: float) -> float | None:
        """The line's value after the horizon; None: fewer than two samples."""
        first, last = bisect_left(self._times, now - window), bisect_right(self._times, now)
        if last - first < 2:
            return None
        line = self._lines.get(window)
        if line is None or line[:2] != (first, last):
            line = (first, last, *_least_squares(self._times[first:last], self._values[first:last]))
            self._lines[window] = line
        _, _, intercept, slope = line
        return intercept + slope * (now + horizon)

    def full_by(self, now: float, window: float, horizon: float) -> float:
        """A forecast of 0 or 1: does the line reach a full pool?"""
        value = self.predict_linear(now, window, horizon)
        return float(value is not None and value >= 1.0)


def _least_squares(times: list[float], values: list[float]) -> tuple[float, float]:
    """Intercept at time 0, and slope."""
    mean_at, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((at - mean_at) ** 2 for at in times)
    pairs = zip(times, values, strict=True)
    slope = sum((at - mean_at) * (value - mean) for at, value in pairs) / spread
    return mean - slope * mean_at, slope
