"""Arrivals of sequences: their present rate, where it tends, and how it varies.

The rate is modelled as wandering around a mean and forgetting its value within a measured time:
seconds for bursts, minutes for daily variation. At a given rate, arrivals are random.
"""

import math
from collections import deque
from copy import copy

from exporter.fold.exhaustion.lengths import bin_of

BIN_SECONDS = 2.0
WINDOW_BINS = 450
"""A quarter of an hour."""
FIT_BINS = 15
"""Bins between two fits of the parameters: half a minute."""
MIN_FORGET_SECONDS, MAX_FORGET_SECONDS = 5.0, 600.0
_NEAR, _FAR = (1, 4), (8, 16)  # lags, in bins, whose covariances are compared
_MEMORY_BINS = 225.0
"""Bins after which a count's weight in the mean and its variance is 1/e."""
_CERTAIN = 2.5
_LIMITS = 128
_PROMPTS = 1000.0
"""Prompts after which the weight of one is 1/e."""
_RECENT_PROMPTS = 100.0
"""The same for those that are kept when traffic has changed."""


class Arrivals:
    """Counts in bins of two seconds, and the sizes of the prompts that arrived."""

    def __init__(self) -> None:
        self.mean_rate = 0.0
        """Sequences a second, in the long run."""
        self.rate = 0.0
        """The present rate, estimated from the counts."""
        self.rate_variance = 0.0
        """Variance of the rate around its mean."""
        self.rate_error = 0.0
        """Variance of `rate` as an estimate."""
        self.forget_seconds = MAX_FORGET_SECONDS
        """Time after which the rate says little about its future value."""
        self.mean_blocks = 0.0
        """Blocks of a prompt."""
        self.mean_square_blocks = 0.0
        self.mean_error = 0.0
        """Variance of `mean_rate` as an estimate."""
        self._recent = 0.0, 0.0  # mean and mean square of the recent prompts' blocks
        self._limits: deque[int] = deque(maxlen=_LIMITS)
        self._num_prompts = 0
        self._counts: deque[int] = deque(maxlen=WINDOW_BINS)
        self._current = 0
        self._ends: float | None = None
        self._until_fit = FIT_BINS

    def observe(self, blocks: int, max_tokens: int, *, first: bool = False) -> None:
        """A sequence arrived whose prompt takes this many blocks; first: at an idle engine.

        That one is not counted: it starts the load, and says nothing about arrivals during it.
        """
        if not first:
            self._current += 1
        self._limits.append(max_tokens)
        self._num_prompts += 1
        share = max(1 / self._num_prompts, 1 / _PROMPTS)
        self.mean_blocks += share * (blocks - self.mean_blocks)
        self.mean_square_blocks += share * (blocks * blocks - self.mean_square_blocks)
        share = max(1 / self._num_prompts, 1 / _RECENT_PROMPTS)
        mean, square = self._recent
        self._recent = mean + share * (blocks - mean), square + share * (blocks**2 - square)

    def changed(self) -> None:
        """Traffic has changed: only the recent prompts are like those to come."""
        self.mean_blocks, self.mean_square_blocks = self._recent
        self._num_prompts = min(self._num_prompts, round(_RECENT_PROMPTS))

    def limits(self) -> tuple[tuple[float, float], ...]:
        """(max_tokens, share of the latest sequences), rising; close ones are merged."""
        groups: dict[int, list[int]] = {}
        for limit in self._limits:
            groups.setdefault(bin_of(limit), []).append(limit)
        return tuple(
            (sum(group) / len(group), len(group) / len(self._limits))
            for _, group in sorted(groups.items())
        )

    def restart(self) -> None:
        """Arrivals meanwhile are unknown: the present bin restarts."""
        self._ends = None
        self._current = 0

    def paused(self, seconds: float) -> None:
        """The engine idled: the earlier rate counts less."""
        kept = math.exp(-seconds / self.forget_seconds)
        self.rate = self.mean_rate + kept * (self.rate - self.mean_rate)
        self.rate_error = kept * kept * self.rate_error + (1 - kept * kept) * self.rate_variance

    def at(self, now: float) -> "Arrivals":
        """The same at this time if no sequence arrives until then; this one stays as it is."""
        if self._ends is not None and now < self._ends:
            return self
        later = copy(self)
        later._counts = self._counts.copy()
        later.advance(now)
        return later

    def advance(self, now: float) -> None:
        """Close the bins that have ended."""
        if self._ends is None:
            self._ends = now + BIN_SECONDS
        if now - self._ends > WINDOW_BINS * BIN_SECONDS:
            self._counts.extend([0] * WINDOW_BINS)
            self._ends = now + BIN_SECONDS
            self._fit()
        while now >= self._ends:
            self._close(self._current)
            self._current = 0
            self._ends += BIN_SECONDS

    def _close(self, count: int) -> None:
        self._counts.append(count)
        self._until_fit -= 1
        if self._until_fit <= 0 or len(self._counts) < FIT_BINS:
            self._fit()
        else:
            self._track(count)

    def _track(self, count: int) -> None:
        """One step of a Kalman filter."""
        kept = math.exp(-BIN_SECONDS / self.forget_seconds)
        error = kept * kept * self.rate_error + (1 - kept * kept) * self.rate_variance
        noise = max(self.mean_rate, 0.1 / BIN_SECONDS) / BIN_SECONDS
        gain = error / (error + noise)
        expected = self.mean_rate + kept * (self.rate - self.mean_rate)
        self.rate = max(0.0, expected + gain * (count / BIN_SECONDS - expected))
        self.rate_error = (1 - gain) * error

    def _fit(self) -> None:
        """Estimate mean, variance and memory of the rate; then follow it through the window."""
        self._until_fit = FIT_BINS
        counts = list(self._counts)
        weights = [
            math.exp((index + 1 - len(counts)) / _MEMORY_BINS) for index in range(len(counts))
        ]
        total = sum(weights)
        mean = sum(w * c for w, c in zip(weights, counts, strict=True)) / total
        deviations = [count - mean for count in counts]

        def covariance(lag: int) -> float:
            pairs = zip(weights[lag:], deviations[lag:], deviations, strict=False)
            return sum(w * a * b for w, a, b in pairs) / sum(weights[lag:])

        self.mean_rate = mean / BIN_SECONDS
        near = far = 0.0
        if len(counts) > 2 * _FAR[1]:
            near = sum(map(covariance, range(*_NEAR))) / (_NEAR[1] - _NEAR[0])
            far = sum(map(covariance, range(*_FAR))) / (_FAR[1] - _FAR[0])
        # Counts of a constant rate have covariances of about mean / sqrt(bins) by chance.
        chance = _CERTAIN * mean / math.sqrt(max(1.0, total) * (_NEAR[1] - _NEAR[0]))
        if near <= chance:
            self.rate_variance = 0.0
            self.forget_seconds = MAX_FORGET_SECONDS
        else:
            between = (sum(_FAR) - sum(_NEAR)) / 2 * BIN_SECONDS
            seconds = between / math.log(near / far) if 0 < far < near else 0.0
            if far >= near:
                seconds = MAX_FORGET_SECONDS
            self.forget_seconds = min(MAX_FORGET_SECONDS, max(MIN_FORGET_SECONDS, seconds))
            back = math.exp(sum(_NEAR) / 2 * BIN_SECONDS / self.forget_seconds)
            self.rate_variance = near * min(back, 3.0) / BIN_SECONDS**2
        self.rate, self.rate_error = self.mean_rate, self.rate_variance
        # The mean itself is an estimate as well.
        self.mean_error = self.mean_rate / (total * BIN_SECONDS) + 2 * self.rate_variance * (
            min(1.0, self.forget_seconds / (total * BIN_SECONDS))
        )
        for count in counts:
            self._track(count)
