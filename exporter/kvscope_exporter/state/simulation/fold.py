"""The fold of simulated pools: hits at other sizes for models whose layers are of several kinds.

A thread of its own runs the simulation, so that neither a fold nor a page waits for it; what is
read is as of the last event that it has taken.
"""

import logging
import threading
import time
import weakref
from collections import deque

from kvscope_events.events import EngineEvent, PoolCreated, PoolSnapshot, StepCompleted
from kvscope_exporter.state.cache.curve import Curve
from kvscope_exporter.state.fold import Fold
from kvscope_exporter.state.simulation.budget import Budget
from kvscope_exporter.state.simulation.follower import FOLLOWED
from kvscope_exporter.state.simulation.simulation import Simulation, Totals

logger = logging.getLogger(__name__)

MAX_QUEUE = 1 << 18
"""Events that wait for the thread. Beyond it they are dropped, and the simulation starts over."""
RESTART_NS = 60 * 10**9
"""From then until a snapshot is asked for, which costs the engine, and the thread may be too slow
once more."""
IDLE_SECONDS = 1.0
"""Longest sleep of the thread, which ends when the fold is gone."""


def can_simulate(pool: PoolCreated | PoolSnapshot) -> bool:
    """Whether its groups are of kinds that are simulated, several of them, with equal blocks."""
    groups = pool.groups
    return (
        len(groups) > 1
        and any(group.kind == "full_attention" for group in groups)
        and all(group.block_size == pool.block_size and not group.drafter for group in groups)
        and all(group.window for group in groups if group.kind == "sliding_window")
        and pool.num_blocks > pool.reserved
    )


class Shadows(Fold):
    """Knows nothing of pools with one kind of layers, whose curve needs no simulation."""

    name = "shadows"

    def __init__(self) -> None:
        super().__init__(
            {
                **dict.fromkeys(FOLLOWED, self._take),
                PoolCreated: self._pool,
                PoolSnapshot: self._pool,
                StepCompleted: self._completed,
            }
        )
        self._is_several = False  # the pool can be simulated
        self._follows = False  # and every event since its state was known is queued, or was
        self._restart_ns = 0
        self._queue: deque[EngineEvent | int | None] = deque()  # times, events; None: a gap
        self._queued_ns = -1  # the last time in the queue, or taken from it
        self._simulation = Simulation(Budget())
        self._turn = threading.Lock()  # to run the simulation
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = False

    @property
    def known(self) -> bool:
        """Whether the simulation runs, believed or not."""
        return not self._failed and self._simulation.usable_blocks > 0

    @property
    def agrees(self) -> bool:
        """Whether the simulated pool of the present size lately found what the engine found."""
        return self.known and self._simulation.agrees()

    @property
    def usable_blocks(self) -> int:
        return self._simulation.usable_blocks

    @property
    def hit_blocks(self) -> dict[str, int]:
        """By scale; empty while the simulation disagrees with the engine."""
        return self._simulation.hit_blocks() if self.known else {}

    @property
    def share(self) -> float:
        """The share of conversations that is simulated."""
        return self._simulation.share

    @property
    def totals(self) -> Totals:
        return self._simulation.totals

    @property
    def queried_blocks(self) -> int:
        """Full blocks of first lookups that might have been found."""
        return self.totals.queried_blocks

    @property
    def error_blocks(self) -> int:
        """Blocks that the simulation of the present size got wrong, by lookup."""
        return self.totals.error_blocks

    def curve(self, window_seconds: float | None, now_ns: int | None = None) -> Curve | None:
        """See `WhatIf.curve`; None while the simulation disagrees with the engine."""
        return self._simulation.curve(window_seconds, now_ns) if self.known else None

    @property
    def num_pending(self) -> int:
        return self._simulation.num_pending

    @property
    def wants_snapshot(self) -> bool:
        """Whether it waits for the pool's state."""
        waits = self._is_several and not self._follows and not self._failed
        return waits and self.batch.time_ns >= self._restart_ns

    def on_gap(self) -> None:
        if self._follows and not self._failed:
            self._follows = False
            self._queue.append(None)

    def settle(self) -> None:
        """Run the simulation on all that was taken, on the caller's thread."""
        with self._turn:
            self._run()
            self._simulation.settle()

    def check(self) -> None:
        """Assert every invariant; O(blocks)."""
        with self._turn:
            self._simulation.check()

    def _pool(self, event: PoolCreated | PoolSnapshot) -> None:
        self._is_several = can_simulate(event)
        if not self._is_several:
            self.on_gap()
        elif not self._failed:
            self._follows = True
            self._take(event)

    def _take(self, event: EngineEvent) -> None:
        if not self._follows or self._failed:
            return
        if self._queued_ns != self.batch.time_ns:  # before the events of that time
            self._queued_ns = self.batch.time_ns
            self._queue.append(self._queued_ns)
        self._queue.append(event)
        if len(self._queue) > MAX_QUEUE:
            logger.warning(
                "what-if: %d events wait: they are dropped, and it starts over in %d seconds",
                *(MAX_QUEUE, RESTART_NS // 10**9),
            )
            self._restart_ns = self.batch.time_ns + RESTART_NS
            self._queue.clear()
            self._queued_ns = -1
            self.on_gap()

    def _completed(self, event: StepCompleted) -> None:
        self._take(event)
        if not self._follows or self._failed:
            return
        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(weakref.ref(self), self._wake), name="kvscope-what-if"
            )
            self._thread.daemon = True
            self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        queue, simulation = self._queue, self._simulation
        while True:
            try:
                item = queue.popleft()
            except IndexError:  # also while it is cleared
                return
            if item is None:
                simulation.lose()
            elif isinstance(item, int):
                simulation.at(item)
            else:
                simulation.take(item)

    def _run_in_turn(self) -> None:
        """On the thread. A defect ends the simulation, and nothing else."""
        began_ns = time.thread_time_ns()
        with self._turn:
            try:
                self._run()
                self._simulation.spend(time.thread_time_ns() - began_ns)
            except Exception:
                self._failed = True
                self._queue.clear()
                logger.exception("what-if: the simulation failed and is given up")


def _work(fold: "weakref.ref[Shadows]", wake: threading.Event) -> None:
    """Until the fold is gone, or its simulation has failed."""
    while (shadows := fold()) is not None and not shadows._failed:
        shadows._run_in_turn()
        del shadows
        wake.wait(IDLE_SECONDS)
        wake.clear()
