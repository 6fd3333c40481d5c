"""Numbers of waiting and running requests, the oldest wait, and the ways requests ended.

The engine's heartbeat states the counts; events move them between two heartbeats, so that an abort
while the engine idles is counted.
"""

from typing import get_args

from kvscope_events.events import (
    PoolCreated,
    RequestFinished,
    RequestPreempted,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    SequenceFinished,
    StepCompleted,
)
from kvscope_events.vocabulary import FinishReason, RejectReason
from kvscope_exporter.state.call_fold import CallFold
from kvscope_exporter.state.calls import Request, Sequence


class Requests(CallFold):
    """The counts are meaningful only while `known`; requests are calls.

    A request waits again once all of its sequences that have not ended are preempted. A sequence
    that has not been admitted yet counts as running here, since no event reports when the second
    sequence of a request is admitted.
    """

    name = "requests"

    def __init__(self) -> None:
        super().__init__()
        self.known = False
        self.waiting = 0
        self.running = 0
        self.sequences_waiting = 0
        self.sequences_running = 0
        self.waiting_known = False
        """Whether `oldest_since_ns` sees every waiting request."""
        self.finished: dict[str, int] = dict.fromkeys(get_args(FinishReason), 0)
        self.rejected: dict[str, int] = dict.fromkeys(get_args(RejectReason), 0)
        self._began = False
        self._counted_swapped = (0, 0)  # at the last heartbeat: after a gap only some are known
        self._all_swapped_known = True

    @property
    def oldest_since_ns(self) -> int | None:
        """When the request that waits longest arrived or was preempted, on our monotonic clock.

        None: no request waits. Meaningful only while `waiting_known`.
        """
        return next((r.waits_since_ns for r in self.calls.waiting.values()), None)

    @property
    def swapped(self) -> int:
        """Waiting requests with a sequence that is swapped out; O(such sequences)."""
        if not self._all_swapped_known:
            return self._counted_swapped[1]
        calls = self.calls
        return len({s.request.number for s in calls.swapped.values()} & calls.waiting.keys())

    @property
    def sequences_swapped(self) -> int:
        """Waiting sequences that are swapped out."""
        return len(self.calls.swapped) if self._all_swapped_known else self._counted_swapped[0]

    def on_lost(self) -> None:
        self.known = self.waiting_known = self._all_swapped_known = False

    def on_pool_created(self, event: PoolCreated) -> None:
        if not self._began:  # the engine has just started: no request waits yet
            self.known = self.waiting_known = self._began = True

    def on_arrived(self, request: Request) -> None:
        self.waiting += 1

    def on_added(self, sequence: Sequence) -> None:
        self.sequences_waiting += 1

    def on_request_rejected(self, event: RequestRejected) -> None:
        self.rejected[event.reason] += 1

    def on_admitted(self, event: RequestScheduled, request: Request | None) -> None:
        self.waiting -= 1
        self.running += 1

    def on_preempted(self, event: RequestPreempted, sequence: Sequence) -> None:
        self.sequences_running -= 1
        self.sequences_waiting += 1
        if not sequence.request.unpreempted:
            self.on_left_waiting(sequence.request)

    def on_left_waiting(self, request: Request) -> None:
        self.running -= 1
        self.waiting += 1

    def on_resumed(self, event: RequestResumed, sequence: Sequence) -> None:
        self.sequences_waiting -= 1
        self.sequences_running += 1
        if sequence.request.unpreempted == 1:
            self.waiting -= 1
            self.running += 1

    def on_ended(self, event: SequenceFinished, sequence: Sequence | None) -> None:
        is_victim = sequence is not None and sequence.preempted is not None
        if is_victim or event.queue_ns is None:
            self.sequences_waiting -= 1
        else:
            self.sequences_running -= 1

    def on_finished(self, event: RequestFinished, request: Request | None) -> None:
        self.finished[event.reason] += 1
        has_waited = request is not None and request.waits_since_ns is not None
        if has_waited or event.queue_ns is None:
            self.waiting -= 1
        else:
            self.running -= 1

    def on_step_completed(self, event: StepCompleted) -> None:
        self.known = self._began = True
        self.waiting = event.requests_waiting
        self.running = event.requests_running
        self.sequences_waiting = event.waiting
        self.sequences_running = event.running
        self._counted_swapped = event.swapped, event.requests_swapped
        if not self._all_swapped_known:
            self._all_swapped_known = len(self.calls.swapped) == event.swapped
        if not self.waiting_known:
            # Those that we know are among those that the engine counts: equal numbers mean the
            # same.
            self.waiting_known = len(self.calls.waiting) == event.requests_waiting
