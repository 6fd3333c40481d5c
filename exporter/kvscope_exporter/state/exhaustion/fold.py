"""Forecast of the KV pool: committed blocks, end of the trend, probability of exhaustion."""

from kvscope_events.events import (
    AllocationFailed,
    Batch,
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
    CacheGroup,
    PagesAllocated,
    PagesReleased,
    PagesShared,
    PoolCounted,
    PoolCreated,
    PoolSnapshot,
    RequestPreempted,
    RequestResumed,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state.block_demand import BlockDemand, Footprint
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.calls import Sequence
from kvscope_exporter.state.exhaustion.probability import Pool, Probability
from kvscope_exporter.state.exhaustion.sequences import Copies, Sequences
from kvscope_exporter.state.exhaustion.trend import Trend

_TERMINAL = frozenset({"finished", "aborted", "preempted", "swapped_out"})
"""Causes of a release after which the sequence holds no block."""


class Exhaustion(CallFold):
    """Demand of the running sequences, a straight line through a minute, and a probability.

    Cached blocks count as available: they are evicted, not waited for. A sequence runs while it
    holds blocks. Sequences that were running when batches were lost are not known:
    `committed_blocks` is None until the last of them has ended.
    """

    name = "exhaustion"

    def __init__(self) -> None:
        super().__init__(
            {
                PoolCreated: self._sized,
                PoolSnapshot: self._sized,
            }
        )
        self._usable = 0
        self._footprint: Footprint | None = None
        self._block_size = 0
        self._sequences = Sequences(self._known)
        self._copies = Copies()
        self._active: int | None = None
        self._is_counted = False  # its blocks are counted, not numbered
        self._num_running = 0
        self._num_waiting: int | None = None  # None: no step has said so
        self._trend = Trend()
        self._probability = Probability()

    @property
    def committed_blocks(self) -> int | None:
        """Blocks that will be active if every running sequence reaches its max_tokens."""
        if self._active is None or self._num_running != len(self._sequences.running):
            return None
        if self._is_counted and self._footprint is not None:
            self._sequences.grow(self._footprint)
        return self._active + self._sequences.owed + self._copies.owed

    @property
    def seconds_to_exhaustion(self) -> float | None:
        """Time until active blocks fill the pool at the present trend.

        None: not within reach, or nothing runs. A pool without running sequences does not fill, and
        an idle engine sends nothing that would end its last minute's trend.
        """
        if self._active is None or not self._usable or not self._num_running:
            return None
        return self._trend.seconds_to_full(self._seconds, self._active, self._usable)

    @property
    def probabilities(self) -> dict[int, float]:
        """Probabilities of exhaustion by horizon; empty while unknown, or while nothing runs."""
        pool = self._pool
        return {} if pool is None else self._probability.at(self._seconds, pool)

    @property
    def _seconds(self) -> float:
        """Time of the latest batch."""
        return self.batch.time_ns / 1e9

    def on_settled(self, batch: Batch) -> None:
        if self._active is not None:
            self._trend.observe(self._seconds, self._active)  # an idle engine has a flat one
        if self._probability.is_due(self._seconds):
            pool = self._pool
            if pool is not None:
                self._probability.observe(self._seconds, pool)

    def on_lost(self) -> None:
        self._active = None
        self._num_waiting = None
        self._forget()

    def _known(self, number: int) -> BlockDemand | None:
        sequence = self.calls.sequences.get(number)
        return None if sequence is None else sequence.demand

    def _forget(self) -> None:
        self._trend = Trend()
        for sequence in self.calls.sequences.values():
            sequence.demand = None
        self._sequences.clear()
        self._copies.clear()
        self._probability.forget()

    @property
    def _pool(self) -> Pool | None:
        """None: unknown, or nothing runs."""
        if not self._num_running or not self._usable:
            return None
        if self._active is None or self._num_waiting is None:
            return None
        return Pool(self._active / self._usable, self._num_running, self._num_waiting)

    def _sized(self, event: PoolCreated | PoolSnapshot) -> None:
        self._usable = event.num_blocks - event.reserved
        self._block_size = event.block_size
        groups = event.groups or [CacheGroup("full_attention", event.block_size)]
        self._footprint = Footprint(groups)
        if isinstance(event, PoolSnapshot):
            self._active = len(event.ref_counts) - event.ref_counts.count(0)
            return
        if self._active is not None:  # it replaces another pool, with other blocks
            self._forget()
        self._active = self._num_running = 0
        self._num_waiting = 0

    def on_added(self, sequence: Sequence) -> None:
        event = sequence.added
        if self._footprint is not None and event is not None:
            sequence.demand = self._footprint.demand(event.prompt_tokens, event.max_tokens)

    def on_allocation_failed(self, _event: AllocationFailed) -> None:
        self._probability.exhausted(self._seconds)

    def on_preempted(self, event: RequestPreempted, sequence: Sequence) -> None:
        if self._is_counted and event.cause == "out_of_blocks":
            self._probability.exhausted(self._seconds)  # no AllocationFailed precedes it
        self._stop(event.sequence)

    def on_resumed(self, event: RequestResumed, sequence: Sequence) -> None:
        self._sequences.resume(event.sequence)

    def on_ended(self, event: SequenceFinished, sequence: Sequence | None) -> None:
        self._stop(event.sequence)
        if sequence is not None:
            sequence.demand = None

    def on_blocks_allocated(self, event: BlocksAllocated) -> None:
        if event.sequence is not None:
            self._take(event.sequence, len(event.blocks))

    def on_blocks_shared(self, event: BlocksShared) -> None:
        if event.sequence is not None and event.cause != "pin":  # a pin is not in its table
            self._take(event.sequence, len(event.blocks))
            if event.cause == "fork":
                self._forked(event.sequence, event.blocks)

    def _forked(self, number: int, blocks: list[int]) -> None:
        sequence = self._known(number)
        if sequence is not None and blocks and sequence.prompt_tokens % self._block_size:
            self._copies.share(blocks[-1])

    def _take(self, sequence: int, count: int) -> None:
        if self._sequences.take(sequence, count):
            self._num_running += 1

    def on_blocks_released(self, event: BlocksReleased) -> None:
        # The next heartbeat states the count, but none follows an end while the engine idles.
        if self._active is not None:
            self._active = max(0, self._active - len(event.cached) - len(event.free))
        self._copies.release(event.shared)
        references = len(event.cached) + len(event.free) + len(event.shared)
        self._lose(event.sequence, references, event.cause)

    def _lose(self, sequence: int | None, references: int, cause: str) -> None:
        if sequence is None or cause == "unpinned":
            return
        if cause in _TERMINAL:
            if not self._stop(sequence):
                self._num_running = max(0, self._num_running - 1)
            return
        self._sequences.give_back(sequence, references)

    def on_pool_counted(self, event: PoolCounted) -> None:
        self._is_counted = True
        self._usable = event.num_blocks - event.reserved
        self._block_size = event.block_size
        self._footprint = Footprint([CacheGroup("full_attention", event.block_size)])
        self._active = event.private + event.protected

    def on_pages_allocated(self, event: PagesAllocated) -> None:
        self._is_counted = True
        if event.sequence is not None:
            self._grow(event.sequence)
            self._take(event.sequence, event.pages)

    def on_pages_shared(self, event: PagesShared) -> None:
        if event.sequence is not None:
            self._grow(event.sequence)
            self._take(event.sequence, event.pages)

    def on_pages_released(self, event: PagesReleased) -> None:
        if event.sequence is not None:
            self._grow(event.sequence)
        if self._active is not None:
            self._active = max(0, self._active - event.cached - event.free)
        self._lose(event.sequence, event.cached + event.free + event.shared, event.cause)

    def _grow(self, sequence: int) -> None:
        """Count its decodes' pages first, whether or not a reader has had them counted."""
        if self._footprint is not None:
            self._sequences.grow_one(sequence, self._footprint)

    def _stop(self, sequence: int) -> bool:
        """A sequence no longer runs; returns whether it was known to run."""
        stopped = self._sequences.stop(sequence)
        if stopped:
            self._num_running = max(0, self._num_running - 1)
        return stopped

    def on_step_completed(self, event: StepCompleted) -> None:
        self._active = event.active_blocks
        self._num_running = event.running
        self._num_waiting = event.waiting
        self._sequences.step(event)
