"""How many requests wait and run, and how they ended.

The engine's heartbeat states the counts; events move them between two heartbeats, so that an
abort while the engine idles is seen.
"""

from typing import get_args

from kvscope_events.events import (
    AllocationFailed,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    DeviceMemorySampled,
    DeviceOutOfMemory,
    FinishReason,
    FirstToken,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
    RejectReason,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    StepCompleted,
)
from exporter.fold.fold import Fold


class Requests(Fold):
    """`waiting`, `running` and `swapped` are meaningful only while `known`."""

    name = "requests"
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
        }
    )

    def __init__(self) -> None:
        super().__init__(
            {
                PoolCreated: self._created,
                RequestArrived: self._arrived,
                RequestRejected: self._rejected,
                RequestScheduled: self._scheduled,
                RequestPreempted: self._preempted,
                RequestResumed: self._resumed,
                RequestFinished: self._finished,
                StepCompleted: self._counted,
            }
        )
        self.known = False
        self.waiting = 0
        self.running = 0
        self.swapped = 0
        self.finished: dict[str, int] = dict.fromkeys(get_args(FinishReason), 0)
        self.rejected: dict[str, int] = dict.fromkeys(get_args(RejectReason), 0)
        self._victims: set[int] = set()  # preempted, not yet resumed
        self._began = False

    def on_gap(self) -> None:
        self.known = False
        self._victims.clear()

    def _created(self, event: PoolCreated) -> None:
        if not self._began:  # the engine's first sign of life: nobody waits yet
            self.known = self._began = True

    def _arrived(self, event: RequestArrived) -> None:
        self.waiting += 1

    def _rejected(self, event: RequestRejected) -> None:
        self.rejected[event.reason] += 1

    def _scheduled(self, event: RequestScheduled) -> None:
        self._start()

    def _preempted(self, event: RequestPreempted) -> None:
        self._victims.add(event.request)
        self.running -= 1
        self.waiting += 1

    def _resumed(self, event: RequestResumed) -> None:
        self._victims.discard(event.request)
        self._start()

    def _finished(self, event: RequestFinished) -> None:
        self.finished[event.reason] += 1
        if event.queue_ns is None or event.request in self._victims:
            self._victims.discard(event.request)
            self.waiting -= 1
        else:
            self.running -= 1

    def _counted(self, event: StepCompleted) -> None:
        self.known = self._began = True
        self.waiting = event.waiting
        self.running = event.running
        self.swapped = event.swapped

    def _start(self) -> None:
        self.waiting -= 1
        self.running += 1
