"""The contract between an engine and its watchers: one typed event per call, one batch per step.

Fields are append-only and carry defaults once released; a tag is never reused. An event owns its
lists: whoever emits one hands them over and never changes them again.

A request is one call of a client; a sequence is one continuation of it (`n`, several prompts).
Events of blocks name the sequence, events of requests count calls. Both are numbers that grow by
one in one engine. A producer that knows sequences only gives each one a request of its own, with
the same number, and says so in its `Hello`. Intervals (`*_ns`) come from the producer's monotonic
clock.
"""

from typing import Union, get_args

import msgspec

from kvscope_events.vocabulary import (
    AllocationCause,
    ContentCause,
    EvictionCause,
    FinishReason,
    GroupKind,
    OutOfMemoryAction,
    PreemptionCause,
    PreemptionMode,
    RejectReason,
    ReleaseCause,
    RequestUnit,
    ServerKind,
    SharingCause,
)

CONTRACT_VERSION = 1
"""Grows when an older reader would misread a newer stream; new events and fields do not count."""

BlockHash = bytes
"""Name of a full block: digest of its content and of all blocks before it, 16 bytes.

With several KV cache groups the group is part of the digest.
"""


class Event(msgspec.Struct, frozen=True, gc=False, tag=True, array_like=True):
    """Base of all events; on the wire an array that begins with the class name."""


class Hello(Event, frozen=True):
    """Who emits these events. First in a stream, before every snapshot, and when a fact changes.

    None: not known, or not known yet.
    """

    contract: int
    session: str  # differs between two runs of a producer: a stream of another session begins anew
    server: ServerKind
    server_version: str
    model_name: str  # as served
    engine: str  # data-parallel rank as text
    pid: int
    ready: bool  # the model is loaded and the engine takes requests
    tells: list[str]  # names of the events that this producer can emit
    requests_are: RequestUnit = "call"
    max_model_len: int | None = None  # tokens of the longest sequence
    enable_prefix_caching: bool | None = None
    cache_dtype: str | None = None  # of K and V
    gpu_memory_utilization: float | None = None  # None: the pool was not sized by a share
    prefix_caching_hash_algo: str | None = None


class ObserverStopped(Event, frozen=True):
    """The producer switched itself off; nothing more will come from it."""

    reason: str


class CacheGroup(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Layers whose blocks are handed out together; all groups share one pool."""

    kind: GroupKind
    block_size: int  # tokens
    window: int | None = None  # tokens that a layer sees; None: all


class PoolCreated(Event, frozen=True):
    """The pool exists (again after every rebuild): all blocks are free but the reserved ones."""

    num_blocks: int
    block_size: int  # tokens that one name covers
    bytes_per_block: int  # K and V of all layers; 0 where no tensors back the pool
    reserved: int = 0
    memory_terms: dict[str, int] = {}  # bytes by SizingTerm; empty: the size was configured
    groups: list[CacheGroup] = []  # empty: one group of full attention


class PoolSnapshot(Event, frozen=True):
    """The pool's whole state, for a subscriber that lost batches; replaces all that it knew."""

    num_blocks: int
    block_size: int
    bytes_per_block: int
    reserved: int
    ref_counts: list[int]  # per block id
    hashes: list[BlockHash | None]  # per block id; None: holds nothing that can be found
    lru: list[int]  # cached blocks, the next to be evicted first
    memory_terms: dict[str, int] = {}
    groups: list[CacheGroup] = []


class RequestArrived(Event, frozen=True):
    """A call passed validation and entered the waiting queue."""

    request: int
    prompt_tokens: int  # each of its prompts once
    max_tokens: int  # of each sequence
    tenant: str = ""
    trace_id: str = ""  # 32 hex digits of the caller's traceparent, or empty


class SequenceAdded(Event, frozen=True):
    """One continuation of a request that has arrived waits for its first step."""

    sequence: int
    request: int
    prompt_tokens: int
    max_tokens: int


class RequestRejected(Event, frozen=True):
    """A call was refused at the door; it never had a number."""

    reason: RejectReason


class PrefixLookup(Event, frozen=True):
    """The prefix cache was asked; once per admission, its retries do not count again."""

    sequence: int
    queried_tokens: int  # all tokens of the sequence, partial last block included
    hashes: list[BlockHash]  # of the full blocks that may hit; one token is always computed
    hit_blocks: int  # leading blocks found
    resumed: bool = False  # the sequence had been preempted


class BlocksAllocated(Event, frozen=True):
    """Free (or just evicted) blocks became active with one reference."""

    sequence: int | None  # None: the owner is not known
    blocks: list[int]
    cause: AllocationCause


class BlocksShared(Event, frozen=True):
    """Each block's reference count went up by one; cached blocks became active."""

    sequence: int | None
    blocks: list[int]
    cause: SharingCause


class BlocksCached(Event, frozen=True):
    """Active blocks became full and findable; consecutive children of `parent`."""

    sequence: int | None
    blocks: list[int]
    hashes: list[BlockHash]
    parent: BlockHash | None  # None: the first block of a sequence is the first of these


class BlocksEvicted(Event, frozen=True):
    """Cached blocks lost their content and became free, the oldest first."""

    blocks: list[int]
    hashes: list[BlockHash]
    cause: EvictionCause


class PrefixCacheReset(Event, frozen=True):
    """Somebody had the prefix cache forget all that it held; BlocksEvicted names it, if any."""

    blocks: int  # cached blocks that lost their content


class ContentDropped(Event, frozen=True):
    """Referenced blocks can no longer be found under these names; their references stay.

    What moved to another block is findable again with the BlocksCached that follows.
    """

    blocks: list[int]
    hashes: list[BlockHash]
    cause: ContentCause


class BlocksReleased(Event, frozen=True):
    """References were given back, one for each block named; split by what became of the blocks.

    Finished, aborted, preempted: all that the sequence held. Other causes: a part, in mid-request.
    """

    sequence: int | None
    cached: list[int]  # entered the evictor in this order, tail of the sequence first
    free: list[int]  # held nothing findable
    shared: list[int]  # still referenced by others
    cause: ReleaseCause


class DeviceMemorySampled(Event, frozen=True):
    """The engine's own view of its device memory, every second and after an out-of-memory error.

    Bytes. None: the allocator does not say (no CUDA, or a backend without that statistic). torch's
    figures are those of one moment; weights and KV pool are constant.
    """

    pid: int
    device_uuid: str | None  # as NVML spells it (GPU-…); None: no CUDA device
    weights_bytes: int
    kv_pool_bytes: int
    allocated_bytes: int | None = None
    active_bytes: int | None = None
    reserved_bytes: int | None = None
    requested_bytes: int | None = None
    inactive_split_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    alloc_retries: int | None = None
    ooms: int | None = None
    activation_peak_bytes: int | None = None  # most that a step took beyond weights and KV pool
    pinned_host_bytes: int | None = None


class DeviceOutOfMemory(Event, frozen=True):
    """A step ran out of device memory."""

    wanted_bytes: int | None  # None: the error does not say
    action: OutOfMemoryAction
    step_tokens: int  # of the step that failed
    retry_tokens: int = 0  # of the smaller step tried next


class AllocationFailed(Event, frozen=True):
    """The pool could not serve a running sequence: what triggers preemption."""

    sequence: int
    wanted: int  # blocks
    available: int  # free and evictable blocks


class RequestPreempted(Event, frozen=True):
    """A running sequence lost its blocks and waits again."""

    sequence: int
    request: int
    mode: PreemptionMode
    cause: PreemptionCause
    discarded_tokens: int  # tokens whose KV had been computed or found
    blocks: int  # references given back
    age_ns: int  # since it was last (re)admitted


class RequestResumed(Event, frozen=True):
    """A preempted sequence runs again."""

    sequence: int
    request: int
    recompute_tokens: int  # of the discarded ones, those the cache no longer held
    cached_tokens: int  # of the discarded ones, those found again
    stalled_ns: int  # since the preemption


class RequestScheduled(Event, frozen=True):
    """The first sequence of a request runs for the first time."""

    request: int
    queue_ns: int  # since arrival
    cached_tokens: int


class FirstToken(Event, frozen=True):
    """A request produced its first token, in whichever of its sequences."""

    request: int
    elapsed_ns: int  # since arrival


class SequenceFinished(Event, frozen=True):
    """A sequence ended, whatever the reason. Times not reached are None, never 0."""

    sequence: int
    request: int
    reason: FinishReason
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    preemptions: int
    elapsed_ns: int  # since arrival
    queue_ns: int | None  # arrival to first scheduled
    prefill_ns: int | None  # first scheduled to first token
    decode_ns: int | None  # first to last token
    computed_tokens: int | None = None  # prompt tokens computed, not found, at first admission


class RequestFinished(Event, frozen=True):
    """The last sequence of a request ended, whatever the reason.

    The reason is the worst of its sequences': error, abort, length, stop.
    """

    request: int
    reason: FinishReason
    prompt_tokens: int  # each of its prompts once
    output_tokens: int  # of all sequences
    max_tokens: int  # of each sequence
    preemptions: int  # of all sequences
    elapsed_ns: int  # since arrival
    queue_ns: int | None  # arrival to first scheduled
    sequences: int = 1


class StepCompleted(Event, frozen=True):
    """One step ended: the heartbeat, and the engine's own count of its blocks to check against."""

    duration_ns: int
    running: int  # sequences
    waiting: int  # sequences
    swapped: int  # sequences
    prefill_tokens: int  # computed for sequences that owed more than their newest token
    decode_tokens: int
    slots_filled: int  # token slots written in active blocks, each block once
    active_blocks: int
    cached_blocks: int
    free_blocks: int
    emitted: list[int]  # sequences that produced a token in this step
    first_tokens: list[int]  # those of them that produced their first one
    requests_running: int  # requests with a sequence that runs
    requests_waiting: int  # requests none of whose sequences runs


EngineEvent = Union[  # noqa: UP007  # a tuple of types in Python 3.10, too
    Hello,
    ObserverStopped,
    PoolCreated,
    PoolSnapshot,
    RequestArrived,
    SequenceAdded,
    RequestRejected,
    PrefixLookup,
    BlocksAllocated,
    BlocksShared,
    BlocksCached,
    BlocksEvicted,
    ContentDropped,
    BlocksReleased,
    DeviceMemorySampled,
    DeviceOutOfMemory,
    AllocationFailed,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
    FirstToken,
    SequenceFinished,
    RequestFinished,
    StepCompleted,
    PrefixCacheReset,
]

EVENT_NAMES: tuple[str, ...] = tuple(event.__name__ for event in get_args(EngineEvent))
"""What a producer can tell, by name."""


class Batch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All events of one step, in order. `seq` grows by exactly one; a gap is a loss."""

    seq: int
    time_ns: int  # producer's monotonic clock: for intervals within the stream
    events: list[EngineEvent]
    wall_ns: int = 0  # producer's wall clock, for display; 0: not known
    arrived_ns: int = 0  # reader's monotonic clock, set by its source: for ages and lag
