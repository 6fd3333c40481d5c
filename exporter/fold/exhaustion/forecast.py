"""The probability that the pool is exhausted within each horizon, from what was seen so far.

What a producer has not told long enough is not known: `MIN_ENDED` sequences must have ended, and
`MIN_SECONDS` passed.
"""

import math
from collections import deque
from collections.abc import Iterator

from exporter.fold.exhaustion.arrivals import Arrivals
from exporter.fold.exhaustion.crossing import crossings
from exporter.fold.exhaustion.demand import Flow, Stock, demand
from exporter.fold.exhaustion.footprint import Footprint
from exporter.fold.exhaustion.horizons import FIRST_LINES, HORIZONS, LAST_OF
from exporter.fold.exhaustion.lengths import Lengths
from exporter.fold.exhaustion.outcomes import Outcomes
from exporter.fold.exhaustion.sequences import Sequence, Sequences

MIN_ENDED = 20
"""Sequences that must have ended: fewer say nothing about lengths."""
MIN_SECONDS = 30.0
"""Of observation: less says nothing about arrivals."""
INTERVAL_SECONDS = 5.0
"""Between two forecasts that are remembered and judged."""
_SPEED_POINTS = 7
_ENOUGH_POOLS = 2.0
"""Waiting sequences that want more than so many pools make no difference any more."""


class Forecast:
    """Learns from ends, arrivals and its own outcomes; computes when asked, at most so often."""

    def __init__(self, sequences: Sequences) -> None:
        self.lengths = Lengths()
        self.arrivals = Arrivals()
        self._sequences = sequences
        self._outcomes = [
            Outcomes(horizon, INTERVAL_SECONDS, line)
            for horizon, line in zip(HORIZONS, FIRST_LINES, strict=True)
        ]
        self._speeds: deque[tuple[float, float]] = deque(maxlen=_SPEED_POINTS)
        self._busy_seconds = 0.0
        self._began: float | None = None
        self._limit: int | None = None
        self._full_at: tuple[int, float] | None = None  # sequences that ran, the clock's tokens

    def passed(self, seconds: float, busy: bool) -> None:
        """Time went by; busy: something was running."""
        if busy:
            self._busy_seconds += seconds

    def exhausted(self, now: float) -> None:
        """The pool could not serve a running sequence."""
        for outcomes in self._outcomes:
            outcomes.happened(now)

    def ended(self, tokens: int, *, stopped: bool) -> None:
        """A sequence ended after so many tokens: by itself, or it was cut off."""
        if self.lengths.observe(tokens, stopped=stopped):
            self.arrivals.changed()

    def forget(self) -> None:
        """Batches were lost: what came, and whether the pool was exhausted, is not known."""
        for outcomes in self._outcomes:
            outcomes.forget()
        self.arrivals.restart()
        self._speeds.clear()

    def remember(self, now: float, model: list[float] | None) -> None:
        """Learn from what has passed since the last time, then keep what the model says now."""
        if self._began is None:
            self._began = now
        self._speeds.append((self._sequences.clock, self._busy_seconds))
        for index, outcomes in enumerate(self._outcomes):
            outcomes.judge(now)
            if model is not None:
                outcomes.forecast(now, model[index])

    def calibrated(self, model: list[float]) -> tuple[float, ...]:
        """By horizon: what the model's word has turned out to mean; never less for a longer one."""
        highest = 0.0
        result = []
        for outcomes, probability in zip(self._outcomes, model, strict=True):
            highest = max(highest, outcomes.calibrated(probability))
            result.append(highest)
        return tuple(result)

    def model(
        self, now: float, footprint: Footprint, active: int, usable: int
    ) -> list[float] | None:
        """By horizon, as the model has it; None: too little is known yet."""
        self.arrivals.advance(now)
        speed = self._tokens_per_second()
        if (
            self._began is None
            or now - self._began < MIN_SECONDS
            or self.lengths.num_ended < MIN_ENDED
            or not speed
        ):
            return None
        sequences, arrivals = self._sequences, self.arrivals
        running = sequences.running.values()
        held = sum(sequence.held for sequence in running)
        share = min(1.0, active / held) if held else 1.0  # of blocks that nobody shares
        waiting = list(self._waiting(footprint, share, usable))
        self._learn_limit(waiting, usable - active)
        places = len(waiting) if self._limit is None else max(0, self._limit - len(running))
        stock = [self._stock(sequence, footprint, share) for sequence in running]
        survival = self.lengths.survival([s.tokens for s in stock])
        lives = survival.mean(arrivals.limits()) / speed
        stock += waiting[:places]
        most = self._limit / lives if self._limit and lives else math.inf
        capped = len(waiting) > places and most < math.inf
        flow = Flow(
            mean_rate=most if capped else min(most, arrivals.mean_rate),
            rate=most if capped else min(most, arrivals.rate),
            forget_seconds=arrivals.forget_seconds,
            variance=0.0 if capped else arrivals.rate_variance,
            error=0.0 if capped else arrivals.rate_error,
            mean_error=0.0 if capped else arrivals.mean_error,
            mean_blocks=share * arrivals.mean_blocks,
            mean_square_blocks=share * share * arrivals.mean_square_blocks,
            limits=arrivals.limits(),
        )
        wanted = demand(stock, flow, survival, speed, footprint.blocks_per_token)
        growth = max(1, len(running)) * speed * footprint.blocks_per_token
        # Room left by the last one let in is anything up to the prompt of the next one.
        probabilities = crossings(wanted, usable, growth / max(1.0, arrivals.mean_blocks))
        return [probabilities[last] for last in LAST_OF]

    def _stock(self, sequence: Sequence, footprint: Footprint, share: float) -> Stock:
        tokens = self._sequences.produced(sequence)
        blocks = sequence.held
        if sequence.since is None:  # some engines hand a prompt's blocks out chunk by chunk
            blocks = max(blocks, footprint.blocks(sequence.prompt_tokens))
        return Stock(tokens, max(0.0, sequence.max_tokens - tokens), share * blocks)

    def _waiting(self, footprint: Footprint, share: float, usable: int) -> Iterator[Stock]:
        wanted = 0.0
        running = self._sequences.running
        if len(self._sequences.known) == len(running):
            return
        for number, sequence in self._sequences.known.items():
            if number not in running:
                tokens = sequence.produced
                blocks = share * footprint.blocks(sequence.prompt_tokens + int(tokens))
                yield Stock(tokens, max(0.0, sequence.max_tokens - tokens), blocks)
                wanted += blocks
                if wanted > _ENOUGH_POOLS * usable:
                    return

    def _learn_limit(self, waiting: list[Stock], available: int) -> None:
        """Sequences that wait although their blocks are there wait for a place: --max-num-seqs.

        Those that came just now wait for the next step: it takes two looks that say the same, with
        tokens in between.
        """
        running, clock = len(self._sequences.running), self._sequences.clock
        if self._limit is not None and running > self._limit:
            self._limit = None
        before, self._full_at = self._full_at, None
        if running and waiting and max(stock.blocks for stock in waiting[:8]) <= available:
            self._full_at = before
            if before is None or before[0] != running:
                self._full_at = (running, clock)
            elif clock > before[1]:
                self._limit = running

    def _tokens_per_second(self) -> float:
        """Of a sequence that runs, in the last half minute of work."""
        if len(self._speeds) < 2:
            return 0.0
        (first_clock, first_busy), (clock, busy) = self._speeds[0], self._speeds[-1]
        return (clock - first_clock) / (busy - first_busy) if busy > first_busy else 0.0
