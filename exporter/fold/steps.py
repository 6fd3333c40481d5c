"""The engine's heartbeat: how long steps take, what they compute, when the last one ended."""

from kvscope_events.events import (
    AllocationFailed,
    Batch,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    DeviceMemorySampled,
    DeviceOutOfMemory,
    FirstToken,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    StepCompleted,
)
from exporter import buckets
from exporter.fold.fold import Fold
from exporter.fold.histogram import Histogram


class Steps(Fold):
    """Sums over steps."""

    name = "steps"
    ignored = frozenset(
        {
            AllocationFailed,
            BlocksAllocated,
            BlocksCached,
            BlocksEvicted,
            BlocksReleased,
            BlocksShared,
            DeviceMemorySampled,
            DeviceOutOfMemory,
            FirstToken,
            PoolSnapshot,
            PrefixLookup,
            RequestArrived,
            RequestFinished,
            RequestPreempted,
            RequestRejected,
            RequestResumed,
            RequestScheduled,
        }
    )

    def __init__(self) -> None:
        super().__init__({PoolCreated: self._created, StepCompleted: self._completed})
        self.duration = Histogram(buckets.STEP_SECONDS)
        self.prefill_tokens = 0
        self.decode_tokens = 0
        self.last_step_ns: int | None = None
        """Monotonic. Before the first step, when the pool came to be: that one can hang, too."""
        self._now_ns = 0

    def on_batch(self, batch: Batch) -> None:
        self._now_ns = batch.time_ns
        super().on_batch(batch)

    def _created(self, event: PoolCreated) -> None:
        self.last_step_ns = self._now_ns

    def _completed(self, event: StepCompleted) -> None:
        self.duration.observe(event.duration_ns / 1e9)
        self.prefill_tokens += event.prefill_tokens
        self.decode_tokens += event.decode_tokens
        self.last_step_ns = self._now_ns
