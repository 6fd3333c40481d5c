"""A straight line through a minute's active blocks, and when it reaches the pool's size."""

from collections import deque

WINDOW_SECONDS = 60.0
"""A few requests' lives, but short enough to follow a burst."""
SAMPLE_SECONDS = 0.5
MIN_SPAN_SECONDS = 5.0
"""Minimum history for a trend."""
REACH_SECONDS = 3600.0
"""A pool that the trend fills only after this time is not about to run out."""


class Trend:
    """Samples of active blocks, at a limited rate; at most `WINDOW_SECONDS` of them."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(
            maxlen=round(WINDOW_SECONDS / SAMPLE_SECONDS)
        )

    def observe(self, seconds: float, active: int) -> None:
        if not self._samples or seconds - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((seconds, active))

    def seconds_to_full(self, now: float, active: int, usable: int) -> float | None:
        """Time until all usable blocks are active; None: not within reach."""
        left = usable - active
        if left <= 0:
            return 0.0
        slope = self._slope(now)
        if slope is None or slope <= 0:
            return None
        seconds = left / slope
        return seconds if seconds <= REACH_SECONDS else None

    def _slope(self, now: float) -> float | None:
        """Blocks a second, by least squares over the window; None: too few samples."""
        points = [(at - now, blocks) for at, blocks in self._samples if now - at <= WINDOW_SECONDS]
        if len(points) < 3 or points[-1][0] - points[0][0] < MIN_SPAN_SECONDS:
            return None
        mean_at = sum(at for at, _ in points) / len(points)
        mean_blocks = sum(blocks for _, blocks in points) / len(points)
        spread = sum((at - mean_at) ** 2 for at, _ in points)
        return sum((at - mean_at) * (blocks - mean_blocks) for at, blocks in points) / spread
