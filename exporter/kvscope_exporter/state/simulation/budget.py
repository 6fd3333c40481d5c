"""The share of roots that is simulated, so that the simulation takes little of one core.

Shares are powers of two. One that costs too much is cut at once, one that costs little is doubled
after a while. Time is that of the stream, so the share of a recording is that of its server.
"""

import logging
from math import ceil, log2

logger = logging.getLogger(__name__)

MOST_OF_CORE = 0.05
PERIOD_NS = 30 * 10**9
PATIENCE = 20
"""Periods in a row that cost less than a fifth before the share is doubled."""
LEAST_SHARE = 1 / 64
LEAST_BLOCKS = 256
"""Least size of the simulated pool of the present scale: one long prompt would decide what a
smaller one finds."""


class Budget:
    def __init__(self) -> None:
        self.share = 1.0
        self._spent_ns = 0
        self._began_ns: int | None = None
        self._cheap = 0

    def spend(self, spent_ns: int) -> None:
        """CPU time that the simulation took."""
        self._spent_ns += spent_ns

    def at(self, time_ns: int, usable_blocks: int) -> bool:
        """Whether the share changes now. time_ns: of the stream."""
        if self._began_ns is None or time_ns < self._began_ns:
            self._began_ns = time_ns
        elapsed_ns = time_ns - self._began_ns
        if elapsed_ns < PERIOD_NS:
            return False
        cost, before = self._spent_ns / elapsed_ns, self.share
        self._spent_ns, self._began_ns = 0, time_ns
        self._cheap = self._cheap + 1 if cost < MOST_OF_CORE / 5 else 0
        if cost > MOST_OF_CORE:
            least = max(LEAST_SHARE, LEAST_BLOCKS / max(1, usable_blocks))
            share = self.share / 2 ** ceil(log2(cost / MOST_OF_CORE))
            while share < least:
                share *= 2
            self.share = min(before, share)
        elif self._cheap == PATIENCE:
            self._cheap = 0
            self.share = min(1.0, 2 * self.share)
        if self.share != before:
            logger.info(
                "what-if: it took %.1f %% of a core: a share of %g of the prompts from now on",
                *(100 * cost, self.share),
            )
        return self.share != before
