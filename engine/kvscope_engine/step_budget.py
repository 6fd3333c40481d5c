"""Tokens that one step may compute: halved when the device is out of memory, back within seconds.

    limit  ──╮                                        ╭─────
             │                                     ╭──╯   doubled every other step,
    failed   ╰──╮       ╭╮    ╭╮         ╭╮      ╭─╯      once the size that failed works
    half        ╰───────╯╰────╯╰─────────╯╰──────╯
                ├───────── crowded ─────────┤ free again

The size that failed is retried, and nothing larger before it has worked. As long as it fails, twice
as many steps pass before the next try, up to a limit: on a card that stays crowded few steps fail,
and a card with free memory is noticed soon.
"""

RAISE_STEPS = 2
"""Steps that must succeed before the budget is doubled, if nothing has failed since."""
FIRST_RETRY_STEPS = 8
"""Steps that must succeed before the failed size is retried."""
MAX_RETRY_STEPS = 64
"""Their maximum. Each failure costs a request its blocks: at most one in 65 steps fails."""


class StepBudget:
    """The budget of the next step. O(1)."""

    def __init__(self, limit: int) -> None:
        """limit: tokens, at least 1."""
        self._limit = limit
        self.current = limit
        """Tokens that the next step may compute, 1 to the limit."""
        self._failed: int | None = None  # the size that failed last and has not worked since
        self._retry_steps = FIRST_RETRY_STEPS
        self._worked = True  # any step since the last cut
        self._successes = 0  # steps since the last change

    def cut(self, tokens: int) -> int:
        """A step of that many tokens ran out of memory. Returns the tokens of the next one."""
        if self._failed is not None and self._worked:  # a retry, not the way down
            self._retry_steps = min(2 * self._retry_steps, MAX_RETRY_STEPS)
        self._failed, self._worked = tokens, False
        self._change(max(1, tokens // 2))
        return self.current

    def succeeded(self, tokens: int) -> None:
        """A step of that many tokens worked."""
        self._worked = True
        if self._failed is not None and tokens >= self._failed:
            self._forget_failure()
        if self.current == self._limit:
            return
        self._successes += 1
        if self._failed is None:
            self._raise_after(RAISE_STEPS, 2 * self.current)
        elif self.current < self._failed:
            self._raise_after(self._retry_steps, self._failed)
        elif self._successes >= MAX_RETRY_STEPS:  # no step was as large: it must not bind forever
            self._forget_failure()

    def _raise_after(self, steps: int, tokens: int) -> None:
        if self._successes >= steps:
            self._change(min(tokens, self._limit))

    def _forget_failure(self) -> None:
        self._failed = None
        self._retry_steps = FIRST_RETRY_STEPS

    def _change(self, tokens: int) -> None:
        self.current = tokens
        self._successes = 0
