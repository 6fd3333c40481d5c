"""Numbers of waiting and running requests, the oldest wait, and the ways requests ended.

The engine's heartbeat states the counts; events move them between two heartbeats, so that an abort
while the engine idles is counted.
"""

from typing import get_args

from kvscope_events.events import (
    PoolCreated,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_events.vocabulary import FinishReason, RejectReason
from kvscope_exporter.state.fold import Fold


class Requests(Fold):
    """The counts are meaningful only while `known`; requests are calls.

    A request waits again once all of its sequences that have not ended are preempted. A sequence
    that has not been admitted yet counts as running here, since no event reports when the second
    sequence of a request is admitted.
    """

    name = "requests"

    def __init__(self) -> None:
        super().__init__(
            {
                PoolCreated: self._created,
                RequestArrived: self._arrived,
                SequenceAdded: self._added,
                RequestRejected: self._rejected,
                RequestScheduled: self._scheduled,
                RequestPreempted: self._preempted,
                RequestResumed: self._resumed,
                SequenceFinished: self._ended,
                RequestFinished: self._finished,
                StepCompleted: self._counted,
            }
        )
        self.known = False
        self.waiting = 0
        self.running = 0
        self.sequences_waiting = 0
        self.sequences_running = 0
        self.waiting_known = False
        """Whether `oldest_since_ns` sees every waiting request."""
        self.finished: dict[str, int] = dict.fromkeys(get_args(FinishReason), 0)
        self.rejected: dict[str, int] = dict.fromkeys(get_args(RejectReason), 0)
        self._since_ns: dict[int, int] = {}  # waiting requests, by the start of their wait
        self._victims: set[int] = set()  # sequences preempted and not yet resumed
        self._unpreempted: dict[int, int] = {}  # request -> sequences neither ended nor victims
        self._began = False
        # At the last heartbeat, and which ones: after a gap only some of them.
        self._counted_swapped = (0, 0)
        self._swapped: dict[int, int] = {}  # sequence -> request
        self._all_swapped_known = True

    @property
    def oldest_since_ns(self) -> int | None:
        """When the request that waits longest arrived or was preempted, on our monotonic clock.

        None: no request waits. Meaningful only while `waiting_known`.
        """
        return next(iter(self._since_ns.values()), None)

    @property
    def swapped(self) -> int:
        """Waiting requests with a sequence that is swapped out; O(such sequences)."""
        if not self._all_swapped_known:
            return self._counted_swapped[1]
        return len({r for r in self._swapped.values() if r in self._since_ns})

    @property
    def sequences_swapped(self) -> int:
        """Waiting sequences that are swapped out."""
        return len(self._swapped) if self._all_swapped_known else self._counted_swapped[0]

    @property
    def num_pending(self) -> int:
        return (
            len(self._swapped) + len(self._since_ns) + len(self._victims) + len(self._unpreempted)
        )

    def on_gap(self) -> None:
        self.known = self.waiting_known = self._all_swapped_known = False
        self._swapped.clear()
        self._since_ns.clear()
        self._victims.clear()
        self._unpreempted.clear()

    def _created(self, event: PoolCreated) -> None:
        if not self._began:  # the engine has just started: no request waits yet
            self.known = self.waiting_known = self._began = True

    def _arrived(self, event: RequestArrived) -> None:
        self.waiting += 1
        self._since_ns[event.request] = self.batch.arrived_ns

    def _added(self, event: SequenceAdded) -> None:
        self.sequences_waiting += 1
        request = event.request
        self._unpreempted[request] = self._unpreempted.get(request, 0) + 1

    def _rejected(self, event: RequestRejected) -> None:
        self.rejected[event.reason] += 1

    def _scheduled(self, event: RequestScheduled) -> None:
        self._start(event.request)

    def _preempted(self, event: RequestPreempted) -> None:
        request = event.request
        self._victims.add(event.sequence)
        if event.mode == "swap":
            self._swapped[event.sequence] = request
        self.sequences_running -= 1
        self.sequences_waiting += 1
        others = self._unpreempted.get(request, 1) - 1  # unknown since a gap: its only one
        self._unpreempted[request] = others
        if not others:
            self._wait(request)

    def _resumed(self, event: RequestResumed) -> None:
        request = event.request
        self._victims.discard(event.sequence)
        self._swapped.pop(event.sequence, None)
        self.sequences_waiting -= 1
        self.sequences_running += 1
        others = self._unpreempted.get(request, 0)
        self._unpreempted[request] = others + 1
        if not others:
            self._start(request)

    def _ended(self, event: SequenceFinished) -> None:
        request = event.request
        self._swapped.pop(event.sequence, None)
        if event.sequence in self._victims:
            self._victims.discard(event.sequence)
            self.sequences_waiting -= 1
            return
        if event.queue_ns is None:
            self.sequences_waiting -= 1
        else:
            self.sequences_running -= 1
        others = self._unpreempted.get(request)
        if others is None:  # from before a gap
            return
        self._unpreempted[request] = others - 1
        if others == 1 and request not in self._since_ns:
            self._wait(request)  # only victims are left, or nothing: then RequestFinished follows

    def _finished(self, event: RequestFinished) -> None:
        request = event.request
        self.finished[event.reason] += 1
        self._unpreempted.pop(request, None)
        if self._since_ns.pop(request, None) is not None or event.queue_ns is None:
            self.waiting -= 1
        else:
            self.running -= 1

    def _counted(self, event: StepCompleted) -> None:
        self.known = self._began = True
        self.waiting = event.requests_waiting
        self.running = event.requests_running
        self.sequences_waiting = event.waiting
        self.sequences_running = event.running
        self._counted_swapped = event.swapped, event.requests_swapped
        if not self._all_swapped_known:
            self._all_swapped_known = len(self._swapped) == event.swapped
        if not self.waiting_known:
            # Those that we know are among those that the engine counts: equal numbers mean the
            # same.
            self.waiting_known = len(self._since_ns) == event.requests_waiting

    def _wait(self, request: int) -> None:
        self._since_ns[request] = self.batch.arrived_ns
        self.running -= 1
        self.waiting += 1

    def _start(self, request: int) -> None:
        self._since_ns.pop(request, None)
        self.waiting -= 1
        self.running += 1
