"""The probability that the pool is exhausted within each horizon, from observations so far.

It is unknown until a producer has reported for long enough: `MIN_ENDED` sequences must have ended,
and `MIN_SECONDS` passed.
"""

import math
from collections import deque
from collections.abc import Iterator

from exporter.fold.exhaustion.arrivals import Arrivals
from exporter.fold.exhaustion.calibration import Calibration
from exporter.fold.exhaustion.crossing import crossings
from exporter.fold.exhaustion.demand import NO_FLOW, Flow, Stock, demand
from exporter.fold.exhaustion.horizons import GRID, LAST_OF
from exporter.fold.exhaustion.lengths import Lengths
from exporter.fold.exhaustion.sequences import Footprint, Sequence, Sequences
from exporter.fold.exhaustion.silence import Silence

MIN_ENDED = 20
"""Sequences that must have ended: fewer say nothing about lengths."""
MIN_SECONDS = 30.0
"""Seconds of observation: less does not support a rate of arrivals."""
_SPEED_POINTS = 7
_SLACK = 2.0
"""A load goes on while its next sequence is at least half as likely as its rate says: gaps vary."""
_ENOUGH_POOLS = 2.0
"""Waiting sequences that need more than this many pools make no further difference."""


class Forecast:
    """Learns from ends, arrivals and its own outcomes, as batches come; what is only read changes
    nothing, so that a recording gives the same."""

    def __init__(self, sequences: Sequences) -> None:
        self.lengths = Lengths()
        self.arrivals = Arrivals()
        self._silence = Silence()
        self._calibration = Calibration()
        self._idle_seconds = 0.0
        self._idle_since: float | None = None
        self._sequences = sequences
        self._speeds: deque[tuple[float, float]] = deque(maxlen=_SPEED_POINTS)
        self._busy_seconds = 0.0
        self._began: float | None = None
        self._limit: int | None = None
        self._full_at: tuple[int, float] | None = None  # sequences that ran, the clock's tokens

    def worked(self, seconds: float) -> None:
        """Something was running for this long."""
        self._busy_seconds += seconds

    def exhausted(self, now: float) -> None:
        """The pool could not serve a running sequence."""
        self._calibration.exhausted(now)

    def idles(self, now: float, idle: bool) -> None:
        """Whether nothing runs or waits.

        Idleness before the first load is left out: a server is often started for it.
        """
        if idle == (self._idle_since is not None):
            return
        self._calibration.idles(now, idle and self.lengths.num_ended >= MIN_ENDED)
        if self._idle_since is None:
            self._idle_since = now
        else:
            self.arrivals.paused(now - self._idle_since)
            self._idle_seconds += now - self._idle_since
            self._idle_since = None

    def came(self, now: float, blocks: int, max_tokens: int) -> None:
        """A sequence arrived whose prompt takes this many blocks."""
        self._silence.came(now)
        self.arrivals.advance(self._busy(now))
        self.arrivals.observe(blocks, max_tokens, first=self._idle_since is not None)

    def _busy(self, now: float) -> float:
        """A clock that stops while nothing runs or waits.

        A rate describes arrivals while there is work; `Idleness` covers arrivals at an idle engine.
        """
        return (now if self._idle_since is None else self._idle_since) - self._idle_seconds

    def idle(self, now: float) -> dict[int, float]:
        """Probabilities by horizon while nothing runs or waits, without unknown ones."""
        return self._calibration.idle(now) if self._knows_enough(now) else {}

    def ended(self, tokens: int, *, stopped: bool) -> None:
        """A sequence ended after this many tokens: by itself, or cut off."""
        if self.lengths.observe(tokens, stopped=stopped):
            self.arrivals.changed()

    def forget(self) -> None:
        """Batches were lost: arrivals, and whether the pool was exhausted, are unknown."""
        self._calibration.forget()
        self.arrivals.restart()
        self._silence.restart()
        self._idle_since = None
        self._speeds.clear()

    def remember(self, now: float, model: list[float] | None, active_ratio: float) -> None:
        """Learn from what has happened since the last call, then keep the model's forecast."""
        if self._began is None:
            self._began = now
        self._speeds.append((self._sequences.clock, self._busy_seconds))
        self._calibration.judge(now)
        if model is not None:
            self._calibration.remember(now, model, active_ratio, self._is_waiting)

    def calibrated(self, now: float, model: list[float], active_ratio: float) -> dict[int, float]:
        """Calibrated probabilities by horizon; never smaller for a longer one."""
        return self._calibration.busy(now, model, active_ratio, self._is_waiting)

    @property
    def _is_waiting(self) -> bool:
        return len(self._sequences.known) > len(self._sequences.running)

    def learn(self, now: float, footprint: Footprint, active: int, usable: int) -> None:
        """Learn about arrivals, lengths and their limit from the sequences that run and wait."""
        self.arrivals.advance(self._busy(now))
        if self._tokens_per_second() and self._knows_enough(now):
            waiting = list(self._waiting(footprint, self._share(active), usable))
            self._learn_limit(waiting, usable - active)
            running = self._sequences.running.values()
            self.lengths.expect([self._sequences.produced(sequence) for sequence in running])

    def model(
        self, now: float, footprint: Footprint, active: int, usable: int
    ) -> list[float] | None:
        """The model's own probabilities by horizon; None: too little is known yet."""
        speed = self._tokens_per_second()
        if not speed or not self._knows_enough(now):
            return None
        arrivals = self.arrivals.at(self._busy(now))
        running = self._sequences.running.values()
        share = self._share(active)
        waiting = list(self._waiting(footprint, share, usable))
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
        growth = max(1, len(running)) * speed * footprint.blocks_per_token
        # The room left by the last admitted one is anything up to the prompt of the next one.
        per_second = growth / max(1.0, arrivals.mean_blocks)

        def crossed(flow: Flow) -> list[float]:
            wanted = demand(stock, flow, survival, speed, footprint.blocks_per_token)
            return crossings(wanted, usable, per_second)

        silent, hazards = self._silence.seconds(now), self._silence.hazards(now)
        goes_on = min(1.0, _SLACK * hazards.now(silent) / flow.rate) if flow.rate else 1.0
        probabilities = crossed(flow)
        if capped or goes_on == 1.0:
            return [probabilities[last] for last in LAST_OF]
        alone = crossed(NO_FLOW)
        again = [hazards.within(silent, seconds) for seconds in GRID]
        return [
            goes_on * probabilities[last]
            + (1 - goes_on) * _resumed(last, alone, probabilities, again)
            for last in LAST_OF
        ]

    def _knows_enough(self, now: float) -> bool:
        return (
            self._began is not None
            and now - self._began >= MIN_SECONDS
            and self.lengths.num_ended >= MIN_ENDED
        )

    def _share(self, active: int) -> float:
        """Share of the running sequences' blocks that only one of them holds."""
        held = sum(sequence.held for sequence in self._sequences.running.values())
        return min(1.0, active / held) if held else 1.0

    def _stock(self, sequence: Sequence, footprint: Footprint, share: float) -> Stock:
        tokens = self._sequences.produced(sequence)
        blocks = sequence.held
        if sequence.since is None:  # some engines hand out a prompt's blocks chunk by chunk
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
        """Sequences that wait although blocks are available wait for --max-num-seqs.

        Those that just arrived wait for the next step, so it takes two equal observations with
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
        """Tokens a second of a running sequence, over the last half minute of work."""
        if len(self._speeds) < 2:
            return 0.0
        (first_clock, first_busy), (clock, busy) = self._speeds[0], self._speeds[-1]
        return (clock - first_clock) / (busy - first_busy) if busy > first_busy else 0.0


def _resumed(last: int, alone: list[float], on: list[float], again: list[float]) -> float:
    """The probability at a point of the grid if nothing arrives before the load resumes.

    alone: if it never resumes. on: if it continues now. again: the chance that it has resumed.
    """
    end, total, before, begins = GRID[last], 0.0, 0.0, 0.0
    left = last
    for index in range(last + 1):
        middle = (begins + GRID[index]) / 2
        while left > 0 and GRID[left - 1] >= end - middle:
            left -= 1
        total += (again[index] - before) * max(alone[last], on[left])
        before, begins = again[index], GRID[index]
    return total + (1 - before) * alone[last]
