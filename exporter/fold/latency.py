"""How long requests waited: queue, first token, between tokens, altogether.

Sequences in steady decode emit together step after step, so their gap is one observation with a
count, and their last emission is kept once, not per request.
"""

from collections import Counter

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


class Latency(Fold):
    """Histograms in seconds, with the trace of the newest traced request in each bucket."""

    name = "latency"
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
            PoolCreated,
            PoolSnapshot,
            PrefixLookup,
            RequestPreempted,
            RequestRejected,
            RequestResumed,
        }
    )

    def __init__(self) -> None:
        super().__init__(
            {
                RequestArrived: self._arrived,
                RequestScheduled: self._scheduled,
                FirstToken: self._first_token,
                RequestFinished: self._finished,
                StepCompleted: self._emitted,
            }
        )
        self.queue = Histogram(buckets.QUEUE_SECONDS)
        self.first_token = Histogram(
            buckets.merged(buckets.FIRST_TOKEN_SECONDS, buckets.VLLM_FIRST_TOKEN_SECONDS)
        )
        self.inter_token = Histogram(
            buckets.merged(buckets.INTER_TOKEN_SECONDS, buckets.VLLM_INTER_TOKEN_SECONDS)
        )
        self.duration = Histogram(
            buckets.merged(buckets.REQUEST_SECONDS, buckets.VLLM_REQUEST_SECONDS)
        )
        self._now_ns = 0
        self._traces: dict[int, str] = {}
        # Last emission: `_cohort_ns` for the requests of `_cohort`, `_last_ns` for the others.
        self._last_ns: dict[int, int] = {}
        self._cohort: list[int] = []
        self._cohort_ns = 0
        self._cohort_trace = ""
        self._leaving: list[int] = []  # finished; their last token is emitted in this step

    @property
    def num_tracked(self) -> int:
        """Requests that something is remembered of."""
        return len({*self._last_ns, *self._cohort, *self._traces})

    def on_batch(self, batch: Batch) -> None:
        self._now_ns = batch.time_ns
        super().on_batch(batch)

    def on_gap(self) -> None:
        self._traces.clear()
        self._last_ns.clear()
        self._cohort = []
        self._leaving = []

    def _arrived(self, event: RequestArrived) -> None:
        if event.trace_id:
            self._traces[event.request] = event.trace_id

    def _scheduled(self, event: RequestScheduled) -> None:
        self._observe(self.queue, event.queue_ns, event.request)

    def _first_token(self, event: FirstToken) -> None:
        self._observe(self.first_token, event.elapsed_ns, event.request)

    def _finished(self, event: RequestFinished) -> None:
        self._observe(self.duration, event.elapsed_ns, event.request)
        self._leaving.append(event.request)

    def _emitted(self, event: StepCompleted) -> None:
        emitted = event.emitted
        if emitted == self._cohort:
            if emitted:
                gap = (self._now_ns - self._cohort_ns) / 1e9
                self.inter_token.observe(gap, len(emitted))
                if self._cohort_trace:
                    self.inter_token.mark(gap, self._cohort_trace, self._now_ns)
                self._cohort_ns = self._now_ns
        elif emitted:
            self._regroup(emitted)
        if self._leaving:
            self._forget()

    def _regroup(self, emitted: list[int]) -> None:
        """The set of emitting requests changed: observe by equal last emission, form a cohort."""
        self._last_ns.update(dict.fromkeys(self._cohort, self._cohort_ns))
        before = [self._last_ns.pop(request, None) for request in emitted]
        for last_ns, count in Counter(before).items():
            if last_ns is not None:  # None: the first token, or its last one was lost in a gap
                self.inter_token.observe((self._now_ns - last_ns) / 1e9, count)
        self._cohort_trace = ""
        if self._traces:
            for request, last_ns in zip(emitted, before, strict=True):
                trace_id = self._traces.get(request)
                if trace_id is not None:
                    self._cohort_trace = trace_id
                    if last_ns is not None:
                        gap = (self._now_ns - last_ns) / 1e9
                        self.inter_token.mark(gap, trace_id, self._now_ns)
        self._cohort = emitted
        self._cohort_ns = self._now_ns

    def _forget(self) -> None:
        self._last_ns.update(dict.fromkeys(self._cohort, self._cohort_ns))
        self._cohort = []
        for request in self._leaving:
            self._last_ns.pop(request, None)
            self._traces.pop(request, None)
        self._leaving.clear()

    def _observe(self, histogram: Histogram, elapsed_ns: int, request: int) -> None:
        seconds = elapsed_ns / 1e9
        histogram.observe(seconds)
        trace_id = self._traces.get(request)
        if trace_id is not None:
            histogram.mark(seconds, trace_id, self._now_ns)
