"""Numbers and times of SGLang's requests, and the events made of them.

Each of SGLang's requests is one sequence of one request of ours, both with the same number.
"""

from collections.abc import Iterator
from typing import Any

from kvscope_events.events import (
    EngineEvent,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    SequenceAdded,
    SequenceFinished,
)
from kvscope_events.limits import count_of
from kvscope_events.tenants import tenant_digest
from kvscope_events.vocabulary import FinishReason, PageReleaseCause, PreemptionCause

_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "abort"}
_TENANT_FIELDS = ("cache_salt", "extra_key", "session_id")


class Sequence:
    """State of one request. Times that it has not reached are None."""

    __slots__ = (
        "admitted_ns",
        "arrived_ns",
        "computed_tokens",
        "discarded",
        "first_token_ns",
        "number",
        "outputs",
        "preempted_ns",
        "preemptions",
        "queue_ns",
        "reported",
        "request",
    )

    def __init__(
        self, number: int, request: Any, arrived_ns: int, *, reported: bool = True
    ) -> None:
        self.number = number  # 0: it came before the observer, and has looked up nothing since
        self.request = request
        self.reported = reported  # its arrival: without it, none of its times is known
        self.arrived_ns = arrived_ns
        self.queue_ns: int | None = None  # arrival to the step that first scheduled it
        self.admitted_ns: int | None = None  # last (re)admitted
        self.first_token_ns: int | None = None
        self.preempted_ns: int | None = None  # None: it is not a waiting victim
        self.discarded: tuple[int, int] = (0, 0)  # by that: tokens, pages
        self.preemptions = 0
        self.outputs = 0  # tokens before it was last admitted
        self.computed_tokens: int | None = None  # of the prompt, at first admission


class Sequences:
    """The requests that SGLang holds, by its ids: those that run, and those that wait."""

    def __init__(self) -> None:
        self.running: dict[str, Sequence] = {}
        self.waiting: dict[str, Sequence] = {}
        self._last = 0

    def number_from(self, others: "Sequences") -> None:
        """Give no number again that those have given."""
        self._last = others._last

    def adopt(self, running: list[Any], waiting: list[Any], now_ns: int) -> None:
        """These came before the observer: what follows says only what they do to the pool."""
        for request in running:
            self.running[request.rid] = Sequence(0, request, now_ns, reported=False)
        for request in waiting:
            sequence = Sequence(0, request, now_ns, reported=False)
            if getattr(request, "is_retracted", False):
                sequence.preempted_ns = now_ns
            self.waiting[request.rid] = sequence

    def arrive(self, request: Any, now_ns: int) -> Iterator[EngineEvent]:
        self._last += 1
        number = self._last
        self.waiting[request.rid] = Sequence(number, request, now_ns)
        prompt_tokens = len(request.origin_input_ids)
        max_tokens = count_of(request.sampling_params.max_new_tokens)
        yield RequestArrived(
            number, prompt_tokens, max_tokens, tenant_of(request), tenant_digest=True
        )
        yield SequenceAdded(number, number, prompt_tokens, max_tokens)

    def join(self, request: Any, now_ns: int) -> Sequence:
        """It is admitted: known to wait, or unknown since it came before the observer."""
        sequence = self.waiting.pop(request.rid, None)
        if sequence is None:
            sequence = Sequence(0, request, now_ns, reported=False)
        if not sequence.number:
            self._last += 1
            sequence.number = self._last
        self.running[request.rid] = sequence
        return sequence

    def left(self, queue: list[Any]) -> list[Sequence]:
        """Those that wait no longer and have not run; forgets them."""
        if len(self.waiting) == len(queue):
            return []
        there = {request.rid for request in queue}
        return [self.waiting.pop(rid) for rid in [*self.waiting] if rid not in there]


def preempted(sequence: Sequence, cause: PreemptionCause) -> Iterator[EngineEvent]:
    """It has given its pages up, and waits."""
    sequence.preemptions += 1
    if not sequence.reported:
        return
    preempted_ns = sequence.preempted_ns or 0
    tokens, pages = sequence.discarded
    yield RequestPreempted(
        *(sequence.number, sequence.number, "recompute", cause, tokens, pages),
        max(0, preempted_ns - (sequence.admitted_ns or preempted_ns)),
    )


def ending(sequence: Sequence, now_ns: int) -> Iterator[EngineEvent]:
    """The events of its end, of whatever kind."""
    if not sequence.reported:
        return
    request, number = sequence.request, sequence.number
    reason = request.finished_reason or getattr(request, "to_finish", None)
    kind: FinishReason = "abort"
    if reason is not None:
        kind = _REASONS.get(reason.to_json().get("type", ""), "error")
    produced = request.finished_len
    output_tokens = len(request.output_ids) if produced is None else int(produced)
    prompt_tokens = len(request.origin_input_ids)
    max_tokens = count_of(request.sampling_params.max_new_tokens)
    elapsed_ns = now_ns - sequence.arrived_ns
    first, queue_ns = sequence.first_token_ns, sequence.queue_ns
    scheduled = None if queue_ns is None else sequence.arrived_ns + queue_ns
    prefill_ns = None if first is None or scheduled is None else max(0, first - scheduled)
    yield SequenceFinished(
        number,
        number,
        kind,
        prompt_tokens,
        output_tokens,
        max_tokens,
        sequence.preemptions,
        elapsed_ns,
        queue_ns,
        prefill_ns,
        None if first is None else now_ns - first,
        sequence.computed_tokens,
    )
    yield RequestFinished(
        number,
        kind,
        prompt_tokens,
        output_tokens,
        max_tokens,
        sequence.preemptions,
        elapsed_ns,
        queue_ns,
    )


def tenant_of(request: Any) -> str:
    """Digest of what separates the request's content from that of others; empty: nothing does."""
    for field in _TENANT_FIELDS:
        value = getattr(request, field, None)
        if value:
            return tenant_digest(value)
    return ""


def cause_of(request: Any) -> PageReleaseCause:
    """The cause for which a request that ends gives its pages back."""
    reason = request.finished_reason or request.to_finish
    return "aborted" if reason.to_json().get("type") == "abort" else "finished"


def loaded_tokens(request: Any) -> int:
    """Tokens of the prefix that came back from the host for this admission."""
    hit = int(getattr(request, "host_hit_length", 0) or 0)
    return min(hit, int(getattr(request, "host_loaded_length", hit) or 0))
