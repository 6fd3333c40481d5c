"""Requests and sequences of one engine, from their arrival until they have ended.

        arrived ── added ── admitted ── first token ── ended ── finished
                               ▲  preempted │
                               └── resumed ◄┘

A request is a call; its sequences are its continuations. It waits again once all of its sequences
that have not ended are preempted. A request or sequence that ended is known until the
next step completes, since that step still names it. One that began before a gap is met again with
its next preemption, resumption or end, and has no arrival.
"""

from collections.abc import Callable

from kvscope_events.events import (
    Batch,
    FirstToken,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    SequenceAdded,
    SequenceFinished,
    StepCompleted,
)
from kvscope_exporter.state.block_demand import BlockDemand
from kvscope_exporter.state.demand import Demand
from kvscope_exporter.state.fold import handlers_of
from kvscope_exporter.state.time_parts import Account
from kvscope_exporter.state.victim import Victim


class Request:
    """A call that has not ended, or ends in this step."""

    __slots__ = (
        "account",
        "arrived",
        "first_ns",
        "is_admitted",
        "longest_output",
        "number",
        "owners",
        "trace_id",
        "unpreempted",
        "waits_since_ns",
    )

    def __init__(self, number: int, arrived: RequestArrived | None = None) -> None:
        self.number = number
        self.arrived = arrived
        """None: it arrived in a gap, or before."""
        self.trace_id = "" if arrived is None else arrived.trace_id
        """Empty: it is not traced, or that is not known."""
        self.is_admitted = False
        """Whether one of its sequences has been admitted, as far as was seen."""
        self.waits_since_ns: int | None = None
        """When it arrived or was preempted as a whole, on our clock; None: it runs."""
        self.unpreempted: int | None = None
        """Its sequences that have neither ended nor are preempted; None: none was seen to begin."""
        # Notes of questions, from here on.
        self.owners: tuple[Demand, ...] = ()
        """Its tenant and its adapter."""
        self.first_ns: int | None = None
        """When it arrived, on the producer's clock; None: it has no token yet."""
        self.longest_output = 0
        """Tokens of its longest sequence that ended."""
        self.account: Account | None = None
        """Its time by part; None: its arrival was not seen."""


class Sequence:
    """A continuation that has not ended, or ends in this step."""

    __slots__ = (
        "added",
        "demand",
        "found_tokens",
        "has_token",
        "is_ended",
        "loaded_tokens",
        "number",
        "preempted",
        "request",
        "untold_preemptions",
        "victim",
    )

    def __init__(self, number: int, request: Request, added: SequenceAdded | None = None) -> None:
        self.number = number
        self.request = request
        self.added = added
        """None: it was added in a gap, or before."""
        self.preempted: RequestPreempted | None = None
        """Its preemption, while it waits after one, or if it ended so."""
        self.is_ended = False
        # Notes of questions, from here on.
        self.found_tokens = self.loaded_tokens = 0
        """Tokens of its prompt that were found or loaded, and those of them that were loaded."""
        self.has_token = False
        """Whether its first token was counted, or will never come."""
        self.untold_preemptions = 0
        """Preemptions since its last token."""
        self.demand: BlockDemand | None = None
        """Blocks that it holds and may take; None: it has ended, or its pool is not known."""
        self.victim: Victim | None = None
        """The same preemption as `preempted`, with the fate of its blocks."""

    @property
    def is_traced(self) -> bool:
        """Whether its request is traced, as far as it was seen when it was added."""
        return self.added is not None and bool(self.request.trace_id)


class Calls:
    """The present requests and sequences, by number; hands on what each event means."""

    def __init__(self, hand_on: Callable[..., None]) -> None:
        """hand_on: called with the name of a transition of `Fold` and its arguments."""
        self.batch = Batch(0, 0, [])
        self.requests: dict[int, Request] = {}
        self.sequences: dict[int, Sequence] = {}
        self.waiting: dict[int, Request] = {}
        """Those that wait, in the order in which they began to."""
        self.swapped: dict[int, Sequence] = {}
        """Those that wait with their KV on the host."""
        self.num_traced = 0
        """Sequences of traced requests."""
        self._hand_on = hand_on
        self._ended: list[Sequence] = []
        self._finished: list[Request] = []
        self.handlers = handlers_of(self)

    def __len__(self) -> int:
        return len(self.requests) + len(self.sequences)

    def clear(self) -> None:
        """Batches were lost: nothing is known of any of them."""
        for part in (self.requests, self.sequences, self.waiting, self.swapped):
            part.clear()
        self._ended.clear()
        self._finished.clear()
        self.num_traced = 0

    def check(self) -> None:
        """Assert that the parts agree with each other; O(requests + sequences)."""
        for number, request in self.waiting.items():
            assert self.requests[number] is request
            assert request.waits_since_ns is not None
        for number, sequence in self.swapped.items():
            assert self.sequences[number] is sequence
            assert sequence.preempted is not None
        assert self.num_traced == sum(each.is_traced for each in self.sequences.values())

    def on_request_arrived(self, event: RequestArrived) -> None:
        number = event.request
        request = self.requests[number] = self.waiting[number] = Request(number, event)
        request.waits_since_ns = self.batch.arrived_ns
        self._hand_on("arrived", request)

    def on_sequence_added(self, event: SequenceAdded) -> None:
        request = self._met(event.request)
        request.unpreempted = (request.unpreempted or 0) + 1
        former = self.sequences.get(event.sequence)
        sequence = self.sequences[event.sequence] = Sequence(event.sequence, request, event)
        self.num_traced += sequence.is_traced - (former is not None and former.is_traced)
        self._hand_on("added", sequence)

    def on_request_scheduled(self, event: RequestScheduled) -> None:
        request = self.requests.get(event.request)
        if request is not None:
            request.is_admitted = True
            self._run(request)
        self._hand_on("admitted", event, request)

    def on_first_token(self, event: FirstToken) -> None:
        self._hand_on("answered", event, self.requests.get(event.request))

    def on_request_preempted(self, event: RequestPreempted) -> None:
        sequence = self._met_sequence(event)
        sequence.preempted = event
        if event.mode == "swap":
            self.swapped[event.sequence] = sequence
        request = sequence.request
        others = request.unpreempted
        request.unpreempted = (1 if others is None else others) - 1  # not known: its only one
        if not request.unpreempted:
            self._wait(request)
        self._hand_on("preempted", event, sequence)

    def on_request_resumed(self, event: RequestResumed) -> None:
        sequence = self._met_sequence(event)
        sequence.preempted = None
        self.swapped.pop(event.sequence, None)
        request = sequence.request
        request.unpreempted = (request.unpreempted or 0) + 1
        if request.unpreempted == 1:
            self._run(request)
        self._hand_on("resumed", event, sequence)

    def on_sequence_finished(self, event: SequenceFinished) -> None:
        sequence = self.sequences.get(event.sequence)
        self.swapped.pop(event.sequence, None)
        request = self._met(event.request)
        is_victim = sequence is not None and sequence.preempted is not None
        if not is_victim and request.unpreempted is not None:
            request.unpreempted -= 1
            # Only victims are left, or nothing: then its end follows.
            if not request.unpreempted and request.waits_since_ns is None:
                self._wait(request)
                self._hand_on("left_waiting", request)
        if sequence is not None:
            sequence.is_ended = True
            self._ended.append(sequence)
        self._hand_on("ended", event, sequence)

    def on_request_finished(self, event: RequestFinished) -> None:
        request = self.requests.get(event.request)
        self.waiting.pop(event.request, None)
        if request is not None:
            self._finished.append(request)
        self._hand_on("finished", event, request)

    def forget_ended(self, event: StepCompleted) -> None:
        """Forget the requests and sequences that ended before the end of this step."""
        for sequence in self._ended:
            if self.sequences.get(sequence.number) is sequence:
                del self.sequences[sequence.number]
                self.num_traced -= sequence.is_traced
        for request in self._finished:
            if self.requests.get(request.number) is request:
                del self.requests[request.number]
        self._ended.clear()
        self._finished.clear()

    def _met(self, number: int) -> Request:
        """The request, also one whose arrival was not seen."""
        request = self.requests.get(number)
        if request is None:
            request = self.requests[number] = Request(number)
        return request

    def _met_sequence(self, event: RequestPreempted | RequestResumed) -> Sequence:
        """The sequence, also one whose beginning was not seen."""
        sequence = self.sequences.get(event.sequence)
        if sequence is None:
            sequence = Sequence(event.sequence, self._met(event.request))
            self.sequences[event.sequence] = sequence
        return sequence

    def _wait(self, request: Request) -> None:
        request.waits_since_ns = self.batch.arrived_ns
        self.waiting[request.number] = request

    def _run(self, request: Request) -> None:
        request.waits_since_ns = None
        self.waiting.pop(request.number, None)
