"""Will the KV pool run out: what running requests may still take, and when the trend meets it."""

from collections import deque

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
from exporter.fold.fold import Fold

WINDOW_SECONDS = 60.0
"""How far back the trend looks: a few requests' lives, short enough to follow a burst."""
SAMPLE_SECONDS = 0.5
MIN_SPAN_SECONDS = 5.0
"""Less history than this is no trend."""
HORIZON_SECONDS = 3600.0
"""A trend that needs longer than this to fill the pool is not approaching."""


class Exhaustion(Fold):
    """Demand of the running requests, and a straight line through the active blocks of a minute.

    Cached blocks count as available: they are evicted, not waited for. Requests that were running
    when batches were lost are not known; `committed` is None until the last of them has ended.
    """

    name = "exhaustion"
    ignored = frozenset(
        {
            AllocationFailed,
            BlocksCached,
            BlocksEvicted,
            DeviceMemorySampled,
            DeviceOutOfMemory,
            FirstToken,
            PrefixLookup,
            RequestRejected,
        }
    )

    def __init__(self) -> None:
        super().__init__(
            {
                PoolCreated: self._sized,
                PoolSnapshot: self._sized,
                RequestArrived: self._arrived,
                RequestScheduled: self._admitted,
                RequestResumed: self._admitted,
                RequestPreempted: self._left,
                RequestFinished: self._finished,
                BlocksAllocated: self._took,
                BlocksShared: self._took,
                BlocksReleased: self._gave_back,
                StepCompleted: self._stepped,
            }
        )
        self._usable = 0
        self._block_size = 0
        self._most: dict[int, int] = {}  # request -> blocks it holds at max_tokens
        self._held: dict[int, int] = {}  # request -> blocks in its table
        self._running: set[int] = set()
        self._owed = 0  # blocks that the running requests may still take
        self._active: int | None = None
        self._num_running = 0
        self._now_ns = 0
        self._samples: deque[tuple[float, int]] = deque(
            maxlen=round(WINDOW_SECONDS / SAMPLE_SECONDS)
        )

    @property
    def committed_blocks(self) -> int | None:
        """Blocks that are active once every running request has run to its max_tokens."""
        if self._active is None or self._num_running != len(self._running):
            return None
        return self._active + self._owed

    @property
    def seconds_to_exhaustion(self) -> float | None:
        """Until active blocks fill the pool at the present trend; None: not approaching."""
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

    def on_batch(self, batch: Batch) -> None:
        self._now_ns = batch.time_ns
        super().on_batch(batch)
        seconds = self._now_ns / 1e9
        if self._active is not None and (
            not self._samples or seconds - self._samples[-1][0] >= SAMPLE_SECONDS
        ):
            self._samples.append((seconds, self._active))  # an idle engine too: its trend is flat

    def on_gap(self) -> None:
        self._most.clear()
        self._held.clear()
        self._running.clear()
        self._owed = 0

    def _sized(self, event: PoolCreated | PoolSnapshot) -> None:
        self._usable = event.num_blocks - event.reserved
        self._block_size = event.block_size
        if isinstance(event, PoolCreated):
            self._active = 0

    def _arrived(self, event: RequestArrived) -> None:
        if self._block_size:
            # The last token is never written: nothing follows it.
            tokens = event.prompt_tokens + event.max_tokens - 1
            self._most[event.request] = -(-tokens // self._block_size)

    def _admitted(self, event: RequestScheduled | RequestResumed) -> None:
        self._num_running += 1
        if event.request in self._most:
            self._running.add(event.request)
            self._owed += self._remaining(event.request)

    def _left(self, event: RequestPreempted) -> None:
        # Its blocks were released before: what it owed went with them.
        self._running.discard(event.request)

    def _finished(self, event: RequestFinished) -> None:
        self._running.discard(event.request)
        self._most.pop(event.request, None)
        self._held.pop(event.request, None)

    def _took(self, event: BlocksAllocated | BlocksShared) -> None:
        if event.request not in self._most:
            return
        if event.request in self._running:
            self._owed -= self._remaining(event.request)
        self._held[event.request] = self._held.get(event.request, 0) + len(event.blocks)
        if event.request in self._running:
            self._owed += self._remaining(event.request)

    def _gave_back(self, event: BlocksReleased) -> None:
        if event.request in self._running:
            self._owed -= self._remaining(event.request)
            self._running.discard(event.request)
        self._held.pop(event.request, None)
        # The next heartbeat states both; but a request that ends while the engine idles has none.
        self._num_running = max(0, self._num_running - 1)
        if self._active is not None:
            self._active = max(0, self._active - len(event.cached) - len(event.free))

    def _remaining(self, request: int) -> int:
        return max(0, self._most[request] - self._held.get(request, 0))

    def _stepped(self, event: StepCompleted) -> None:
        self._active = event.active_blocks
        self._num_running = event.running

    def _slope(self) -> float | None:
        """Blocks a second, by least squares over the window."""
        now = self._now_ns / 1e9
        points = [(at - now, blocks) for at, blocks in self._samples if now - at <= WINDOW_SECONDS]
        if len(points) < 3 or points[-1][0] - points[0][0] < MIN_SPAN_SECONDS:
            return None
        mean_at = sum(at for at, _ in points) / len(points)
        mean_blocks = sum(blocks for _, blocks in points) / len(points)
        spread = sum((at - mean_at) ** 2 for at, _ in points)
        return sum((at - mean_at) * (blocks - mean_blocks) for at, blocks in points) / spread
