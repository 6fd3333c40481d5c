"""The calls in progress: how many run and wait, and the events that count calls.

Every method is O(1) except those for a whole call: its arrival and its end.
"""

import time

from kvscope_engine.request import Request, Sequence
from kvscope_events.bus import Bus
from kvscope_events.events import (
    FirstToken,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceAdded,
    SequenceFinished,
)


class RequestBook:
    """Follows sequences through the scheduler and derives the state of their calls."""

    def __init__(self, bus: Bus) -> None:
        self._emit = bus.emit
        self._requests: dict[int, Request] = {}
        self.num_running = 0
        """Calls with a sequence that runs."""
        self.num_ended = 0
        """Total number of ended calls."""

    def __len__(self) -> int:
        """Calls that have not ended."""
        return len(self._requests)

    @property
    def num_waiting(self) -> int:
        """Calls without a running sequence, swapped-out ones included."""
        return len(self._requests) - self.num_running

    @property
    def requests(self) -> list[Request]:
        """The calls that have not ended, in order of arrival."""
        return list(self._requests.values())

    def get(self, request_id: int) -> Request | None:
        """None: it has ended, or never arrived."""
        return self._requests.get(request_id)

    def is_running(self, request_id: int) -> bool:
        """Whether a sequence of a call that has not ended runs."""
        return self._requests[request_id].num_running > 0

    def arrived(self, request: Request) -> None:
        """The call waits from now on; if this raises, nothing has changed."""
        arrived = RequestArrived(
            request.request_id,
            request.prompt_tokens,
            request.max_tokens,
            request.tenant,
            *request.trace,
            request.operation,
            tenant_digest=True,
        )
        added = [
            SequenceAdded(
                sequence.sequence_id,
                request.request_id,
                sequence.prompt_length,
                sequence.sampling.max_tokens,
            )
            for sequence in request.sequences
        ]
        self._requests[request.request_id] = request
        self._emit(arrived)
        for event in added:
            self._emit(event)

    def admitted(self, sequence: Sequence, now_ns: int, swapped_tokens: int = 0) -> None:
        """The sequence begins to run, or runs again; its blocks are there.

        swapped_tokens: those of its computed tokens that came back from the swap pool.
        """
        request = self._requests[sequence.request_id]
        if not request.num_running:
            self.num_running += 1
        request.num_running += 1
        found = sequence.num_computed_tokens - swapped_tokens
        if sequence.preempted_ns is not None:
            found = min(found, sequence.discarded_tokens)
            self._emit(
                RequestResumed(
                    sequence.sequence_id,
                    request.request_id,
                    recompute_tokens=sequence.discarded_tokens - found - swapped_tokens,
                    cached_tokens=found,
                    stalled_ns=now_ns - sequence.preempted_ns,
                    swapped_tokens=swapped_tokens,
                )
            )
            return
        sequence.first_scheduled_ns = now_ns
        sequence.computed_prompt_tokens = sequence.prompt_length - found
        if request.first_scheduled_ns is None:
            request.first_scheduled_ns = now_ns
            self._emit(RequestScheduled(request.request_id, now_ns - request.arrival_ns, found))

    def preempted(self, sequence: Sequence, event: RequestPreempted) -> None:
        """The sequence waits again."""
        self._stopped_running(self._requests[sequence.request_id])
        self._emit(event)

    def first_token(self, sequence: Sequence, now_ns: int) -> None:
        """The sequence has its first token."""
        request = self._requests[sequence.request_id]
        sequence.first_token_ns = now_ns
        if request.first_token_ns is None:
            request.first_token_ns = now_ns
            self._emit(FirstToken(request.request_id, now_ns - request.arrival_ns))

    def finished(self, sequence: Sequence, *, was_running: bool) -> None:
        """The sequence has ended; with the last one its call ends."""
        request = self._requests[sequence.request_id]
        if was_running:
            self._stopped_running(request)
        now_ns = time.monotonic_ns()
        self._emit(_sequence_finished(sequence, request, now_ns))
        request.num_finished += 1
        if request.finished:
            del self._requests[request.request_id]
            self.num_ended += 1
            self._emit(_request_finished(request, now_ns))

    def _stopped_running(self, request: Request) -> None:
        request.num_running -= 1
        if not request.num_running:
            self.num_running -= 1


def _sequence_finished(sequence: Sequence, request: Request, now_ns: int) -> SequenceFinished:
    assert sequence.finish_reason is not None
    return SequenceFinished(
        sequence=sequence.sequence_id,
        request=request.request_id,
        reason=sequence.finish_reason,
        prompt_tokens=sequence.prompt_length,
        output_tokens=sequence.num_output_tokens,
        max_tokens=sequence.sampling.max_tokens,
        preemptions=sequence.num_preemptions,
        elapsed_ns=now_ns - request.arrival_ns,
        queue_ns=_between(request.arrival_ns, sequence.first_scheduled_ns),
        prefill_ns=_between(sequence.first_scheduled_ns, sequence.first_token_ns),
        decode_ns=_between(sequence.first_token_ns, sequence.last_token_ns),
        computed_tokens=sequence.computed_prompt_tokens,
    )


def _request_finished(request: Request, now_ns: int) -> RequestFinished:
    return RequestFinished(
        request=request.request_id,
        reason=request.finish_reason,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        max_tokens=request.max_tokens,
        preemptions=request.num_preemptions,
        elapsed_ns=now_ns - request.arrival_ns,
        queue_ns=_between(request.arrival_ns, request.first_scheduled_ns),
        sequences=len(request.sequences),
    )


def _between(start_ns: int | None, end_ns: int | None) -> int | None:
    return None if start_ns is None or end_ns is None else end_ns - start_ns
