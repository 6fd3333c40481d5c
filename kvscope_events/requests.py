"""Events of requests and their sequences, from arrival to end.

Declared separately; import them from `events.py` like the others.
"""

from kvscope_events.event import Event
from kvscope_events.limits import Count, Label, SpanId, TraceId
from kvscope_events.vocabulary import (
    FinishReason,
    Operation,
    PreemptionCause,
    PreemptionMode,
    RejectReason,
    Route,
    Tier,
)


class RequestArrived(Event, frozen=True):
    """A call passed validation and entered the waiting queue."""

    request: int
    prompt_tokens: Count  # each of its prompts once
    max_tokens: Count  # of each sequence
    tenant: str = ""  # see `tenants.tenant_digest`; empty: not known
    trace_id: TraceId = ""  # 32 hex digits; empty: not part of a known trace
    parent_span_id: SpanId = ""  # 16 hex digits of the caller's span; empty: the trace begins here
    sampled: bool = False  # its flag: the caller records this trace
    operation: Operation = ""  # empty: not known
    adapter: Label = ""  # name of the LoRA adapter; empty: the model itself, or not known
    tenant_digest: bool = False  # `tenant` is a digest of what the client sent
    priority: int | None = None  # as the scheduler compares it; None: not known
    taken_ns: Count | None = None  # since the front end took the call; None: not known


class SequenceAdded(Event, frozen=True):
    """One continuation of an arrived request waits for its first step."""

    sequence: int
    request: int
    prompt_tokens: Count
    max_tokens: Count


class RequestRejected(Event, frozen=True):
    """A call was refused before it entered the engine, so it never had a number."""

    reason: RejectReason


class RequestPreempted(Event, frozen=True):
    """A running sequence lost its blocks and waits again.

    Mode swap: their content was copied to the host before, and comes back.
    """

    sequence: int
    request: int
    mode: PreemptionMode
    cause: PreemptionCause
    discarded_tokens: Count  # tokens whose KV had been computed or found
    blocks: Count  # references given back
    age_ns: Count  # since it was last (re)admitted
    # Estimated engine time of either way, if that decided between them; else None.
    swap_cost_ns: Count | None = None
    recompute_cost_ns: Count | None = None


class RequestResumed(Event, frozen=True):
    """A preempted sequence runs again."""

    sequence: int
    request: int
    recompute_tokens: Count  # of the discarded ones, those that have to be computed again
    cached_tokens: Count  # of the discarded ones, those that the cache held or a connector loads
    stalled_ns: Count  # since the preemption
    swapped_tokens: Count = 0  # of the discarded ones, those copied back from the swap pool
    loaded_tokens: Count = 0  # of cached_tokens, those from a tier below the pool
    loaded_from: Tier | None = None  # the tier that supplies them; None: none, or not known


class RequestScheduled(Event, frozen=True):
    """The first sequence of a request runs for the first time."""

    request: int
    queue_ns: Count  # since arrival
    cached_tokens: Count


class FirstToken(Event, frozen=True):
    """A request produced its first token, in any of its sequences."""

    request: int
    elapsed_ns: Count  # since arrival


class SequenceFinished(Event, frozen=True):
    """A sequence ended, for whatever reason. Times that it did not reach are None, never 0.

    The blocks that it still references are held: see `BlocksReleased`.
    """

    sequence: int
    request: int
    reason: FinishReason
    prompt_tokens: Count
    output_tokens: Count
    max_tokens: Count
    preemptions: Count
    elapsed_ns: Count  # since arrival
    queue_ns: Count | None  # arrival to first scheduled
    prefill_ns: Count | None  # first scheduled to first token
    decode_ns: Count | None  # first to last token
    computed_tokens: Count | None = None  # prompt tokens computed, not found, at first admission


class RequestFinished(Event, frozen=True):
    """The last sequence of a request ended, for whatever reason.

    `reason` is the worst among its sequences, in the order error, abort,
    stop_string_or_abort, length, stop.
    """

    request: int
    reason: FinishReason
    prompt_tokens: Count  # each of its prompts once
    output_tokens: Count  # of all sequences
    max_tokens: Count  # of each sequence
    preemptions: Count  # of all sequences
    elapsed_ns: Count  # since arrival
    queue_ns: Count | None  # arrival to first scheduled
    sequences: Count = 1


class AnswerSent(Event, frozen=True):
    """A front end has answered an HTTP request with a body, or given it up, since its client left.

    Times in nanoseconds. None: not known, or there is no such moment.
    """

    route: Route
    status: Count | None  # None: the client left before the header of the answer
    is_complete: bool  # False: the client left, or the connection broke
    duration_ns: Count  # from the request's header to the end of the answer
    first_ns: Count | None = None  # from there to the first part of a streamed answer
    before_ns: Count | None = None  # from there until the engine was given the request
    after_ns: Count | None = None  # from the engine's last token to the end of the answer
    # Part of before_ns, summed over the request's prompts: waiting for a thread of the tokenizer,
    # and the chat template and tokenization there.
    tokenizer_queue_ns: Count | None = None
    tokenizer_ns: Count | None = None


class FrontEndSampled(Event, frozen=True):
    """Generating requests that a front end has taken and not answered, by where they are."""

    before_engine: Count
    in_engine: Count
    after_engine: Count
    tokenizer_queue: Count | None = None  # calls that wait for a thread of the tokenizer
