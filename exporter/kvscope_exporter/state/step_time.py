"""The time that a step takes for its work: a fit that steps slowed from outside hardly move.

duration = fixed + prefill tokens * a + decode tokens * b, by least squares in which older steps
count less. Disturbances only ever add time, so a step that takes longer than expected has a
hundredth of the weight of one that does not.
"""

from math import exp

_MEMORY_NS = 200 * 10**9
"""Time of the steps it learned from, after which one of them counts a third."""
_LONGER = 1.15
"""Times the expected duration, above which a step counts as disturbed."""
_LITTLE = 0.01
_LEAST_STEPS = 100
_SOLVE_EVERY = 32
_TRUSTED = 0.1
"""Mean deviation of undisturbed steps, as a share of their duration, up to which it is used."""
_UNIT_NS = 1e6
_TOKENS = 100.0
"""Scales that keep the sums near one."""


class StepTime:
    """Knows nothing until `is_known`."""

    def __init__(self) -> None:
        self.is_known = False
        self._coefficients = (0.0, 0.0, 0.0)
        self._sums = (0.0,) * 9
        self._steps = 0
        self._deviation = self._expected = 0.0

    @property
    def is_fitted(self) -> bool:
        """Whether there is a fit at all, to divide a step's time by."""
        return self._steps >= _LEAST_STEPS

    @property
    def fit(self) -> tuple[int, int]:
        """Nanoseconds of a step without tokens, and those that each token of a prompt adds."""
        return self.expected_ns(0, 0), int(self._coefficients[1] / _TOKENS * _UNIT_NS)

    def prefill_ns(self, prefill_tokens: int) -> int:
        """Time that the tokens of prompts add to a step."""
        return int(self._coefficients[1] * prefill_tokens / _TOKENS * _UNIT_NS)

    def expected_ns(self, prefill_tokens: int, decode_tokens: int) -> int:
        """Time of a whole step, undisturbed."""
        fixed, a, b = self._coefficients
        return int((fixed + a * prefill_tokens / _TOKENS + b * decode_tokens / _TOKENS) * _UNIT_NS)

    def learn(self, prefill_tokens: int, decode_tokens: int, duration_ns: int) -> None:
        """A step took this long."""
        p, d, y = prefill_tokens / _TOKENS, decode_tokens / _TOKENS, duration_ns / _UNIT_NS
        weight = 1.0
        fixed, a, b = self._coefficients
        if self._steps >= _LEAST_STEPS:
            expected = fixed + a * p + b * d
            if y > _LONGER * expected:
                weight = _LITTLE
            else:
                self._deviation += (abs(y - expected) - self._deviation) / _LEAST_STEPS
                self._expected += (expected - self._expected) / _LEAST_STEPS
        fade = exp(-duration_ns / _MEMORY_NS)
        n, sp, sd, pp, pd, dd, sy, py, dy = self._sums
        self._sums = (
            fade * n + weight,
            fade * sp + weight * p,
            fade * sd + weight * d,
            fade * pp + weight * p * p,
            fade * pd + weight * p * d,
            fade * dd + weight * d * d,
            fade * sy + weight * y,
            fade * py + weight * p * y,
            fade * dy + weight * d * y,
        )
        self._steps += 1
        if self._steps % _SOLVE_EVERY == 8:
            self._solve()
            self.is_known = (
                self._steps >= 2 * _LEAST_STEPS and self._deviation <= _TRUSTED * self._expected
            )

    def _solve(self) -> None:
        """Normal equations by Cramer's rule, a little on the diagonal for steps that are alike."""
        n, p, d, pp, pd, dd, y, py, dy = self._sums
        ridge = 1e-6 * (n + 1)
        n, pp, dd = n + ridge, pp + ridge, dd + ridge
        whole = n * (pp * dd - pd * pd) - p * (p * dd - pd * d) + d * (p * pd - pp * d)
        if whole <= 0:
            return
        fixed = y * (pp * dd - pd * pd) - p * (py * dd - pd * dy) + d * (py * pd - pp * dy)
        a = n * (py * dd - pd * dy) - y * (p * dd - pd * d) + d * (p * dy - py * d)
        b = n * (pp * dy - py * pd) - p * (p * dy - py * d) + y * (p * pd - pp * d)
        self._coefficients = (fixed / whole, max(0.0, a / whole), max(0.0, b / whole))
