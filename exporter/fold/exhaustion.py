"""Forecast of the KV pool: what running sequences may still take, and when the pool is full."""

from collections import deque

from exporter.fold.fold import Fold
from kvscope_events.events import (
    Batch,
    BlocksAllocated,
    BlocksReleased,
    BlocksShared,
    CacheGroup,
    PoolCreated,
    PoolSnapshot,
    RequestPreempted,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)

WINDOW_SECONDS = 60.0
"""Window of the trend: a few requests' lives, but short enough to follow a burst."""
SAMPLE_SECONDS = 0.5
MIN_SPAN_SECONDS = 5.0
"""Least history for a trend."""
HORIZON_SECONDS = 3600.0
"""A pool that the trend would fill only after this time is not about to run out."""

_TERMINAL = frozenset({"finished", "aborted", "preempted"})
"""Causes of a release after which the sequence holds no block."""


class Exhaustion(Fold):
    """Demand of the running sequences, and a straight line through a minute's active blocks.

    Cached blocks count as available: they are evicted, not waited for. A sequence runs while it
    holds blocks. Those that were running when batches were lost are not known; `committed_blocks`
    is None until the last of them has ended.
    """

    name = "exhaustion"

    def __init__(self) -> None:
        super().__init__(
            {
                PoolCreated: self._sized,
                PoolSnapshot: self._sized,
                SequenceAdded: self._added,
                RequestPreempted: self._preempted,
                SequenceFinished: self._finished,
                BlocksAllocated: self._allocated,
                BlocksShared: self._shared,
                BlocksReleased: self._gave_back,
                StepCompleted: self._stepped,
            }
        )
        self._usable = 0
        self._groups: list[CacheGroup] = []
        self._most: dict[int, int] = {}  # sequence -> blocks that it holds at max_tokens
        self._held: dict[int, int] = {}  # running sequence -> blocks in its table
        self._owed = 0  # blocks that the running sequences may still take
        self._active: int | None = None
        self._num_running = 0
        self._samples: deque[tuple[float, int]] = deque(
            maxlen=round(WINDOW_SECONDS / SAMPLE_SECONDS)
        )

    @property
    def committed_blocks(self) -> int | None:
        """Blocks that are active once every running sequence has run to its max_tokens."""
        if self._active is None or self._num_running != len(self._held):
            return None
        return self._active + self._owed

    @property
    def seconds_to_exhaustion(self) -> float | None:
        """Time until active blocks fill the pool at the present trend; None: not within reach."""
        if self._active is None or not self._usable:
            return None
        left = self._usable - self._active
        if left <= 0:
            return 0.0
        slope = self._slope()
        if slope is None or slope <= 0:
            return None
        seconds = left / slope
        return seconds if seconds <= HORIZON_SECONDS else None

    @property
    def num_pending(self) -> int:
        return len(self._most)

    def on_batch(self, batch: Batch) -> None:
        super().on_batch(batch)
        seconds = batch.time_ns / 1e9
        if self._active is not None and (
            not self._samples or seconds - self._samples[-1][0] >= SAMPLE_SECONDS
        ):
            self._samples.append((seconds, self._active))  # an idle engine has a flat one

    def on_gap(self) -> None:
        self._most.clear()
        self._held.clear()
        self._owed = 0

    def _sized(self, event: PoolCreated | PoolSnapshot) -> None:
        self._usable = event.num_blocks - event.reserved
        self._groups = event.groups or [CacheGroup("full_attention", event.block_size)]
        if isinstance(event, PoolCreated):
            self._active = 0

    def _added(self, event: SequenceAdded) -> None:
        if self._groups:
            # The KV of the last token is never written: nothing follows it.
            tokens = event.prompt_tokens + event.max_tokens - 1
            self._most[event.sequence] = sum(_most_blocks(tokens, g) for g in self._groups)

    def _preempted(self, event: RequestPreempted) -> None:
        self._stop(event.sequence)

    def _finished(self, event: SequenceFinished) -> None:
        self._stop(event.sequence)
        self._most.pop(event.sequence, None)

    def _allocated(self, event: BlocksAllocated) -> None:
        if event.sequence is not None:
            self._take(event.sequence, len(event.blocks))

    def _shared(self, event: BlocksShared) -> None:
        if event.sequence is not None and event.cause != "pin":  # a pin is not in its table
            self._take(event.sequence, len(event.blocks))

    def _take(self, sequence: int, count: int) -> None:
        most = self._most.get(sequence)
        if most is None:
            return
        held = self._held.get(sequence)
        if held is None:
            held = 0
            self._num_running += 1
            self._owed += most
        self._held[sequence] = held + count
        if held < most:
            self._owed -= min(count, most - held)

    def _gave_back(self, event: BlocksReleased) -> None:
        # The next heartbeat states the count, but none follows what ends while the engine idles.
        if self._active is not None:
            self._active = max(0, self._active - len(event.cached) - len(event.free))
        sequence = event.sequence
        if sequence is None or event.cause == "unpinned":
            return
        if event.cause in _TERMINAL:
            if not self._stop(sequence):
                self._num_running = max(0, self._num_running - 1)
            return
        held = self._held.get(sequence)
        if held is not None:
            left = held - len(event.cached) - len(event.free) - len(event.shared)
            most = self._most[sequence]
            self._owed += max(0, most - left) - max(0, most - held)
            self._held[sequence] = left

    def _stop(self, sequence: int) -> bool:
        """Forget a running sequence; returns whether it was known to run."""
        held = self._held.pop(sequence, None)
        if held is None:
            return False
        self._owed -= max(0, self._most[sequence] - held)
        self._num_running = max(0, self._num_running - 1)
        return True

    def _stepped(self, event: StepCompleted) -> None:
        self._active = event.active_blocks
        self._num_running = event.running

    def _slope(self) -> float | None:
        """Blocks a second, by least squares over the window."""
        now = self.batch.time_ns / 1e9
        points = [(at - now, blocks) for at, blocks in self._samples if now - at <= WINDOW_SECONDS]
        if len(points) < 3 or points[-1][0] - points[0][0] < MIN_SPAN_SECONDS:
            return None
        mean_at = sum(at for at, _ in points) / len(points)
        mean_blocks = sum(blocks for _, blocks in points) / len(points)
        spread = sum((at - mean_at) ** 2 for at, _ in points)
        return sum((at - mean_at) * (blocks - mean_blocks) for at, blocks in points) / spread


def _most_blocks(tokens: int, group: CacheGroup) -> int:
    """Blocks of one group that a sequence of so many tokens holds at once."""
    blocks = -(-tokens // group.block_size)
    if group.window is None:
        return blocks
    return min(blocks, -(-group.window // group.block_size) + 1)  # a window may begin in a block
