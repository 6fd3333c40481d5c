"""The contract between an engine and its watchers: one typed event per call, one batch per step.

Fields are append-only and carry defaults once added; a tag is never reused. An event owns its
lists: whoever emits one hands them over and never changes them again. Request ids are integers that
grow by one per request of one engine. Intervals (`*_ns`) come from the engine's monotonic clock.
"""

from typing import Literal

import msgspec

BlockHash = bytes
"""Content digest of a full block and all blocks before it, 16 bytes."""

AllocationCause = Literal["prefill", "decode"]
SharingCause = Literal["prefix_hit"]
EvictionCause = Literal["capacity", "reset"]
ReleaseCause = Literal["finished", "aborted", "preempted"]
PreemptionMode = Literal["recompute"]
PreemptionCause = Literal["out_of_blocks", "out_of_memory"]
OutOfMemoryAction = Literal["retried", "gave_up"]
FinishReason = Literal["stop", "length", "abort", "error"]
SizingTerm = Literal[
    "total",
    "requested",
    "in_use_at_start",
    "weights",
    "buffers",
    "activation_peak",
    "non_torch",
    "kv_pool",
    "unclaimed",
]
"""Of a sized pool: all but the first two add up to the first; a CPU knows no peak, no non_torch."""
RejectReason = Literal["queue_full", "prompt_too_long", "invalid", "draining", "engine_dead"]


class Event(msgspec.Struct, frozen=True, gc=False, tag=True, array_like=True):
    """Base of all events; on the wire an array that begins with the class name."""


class PoolCreated(Event, frozen=True):
    """The pool exists (again after every rebuild): all blocks are free but the reserved ones."""

    num_blocks: int
    block_size: int  # tokens
    bytes_per_block: int  # K and V of all layers; 0 where no tensors stand behind the pool
    reserved: int = 0
    memory_terms: dict[str, int] = {}  # bytes by SizingTerm; empty: the size was told


class PoolSnapshot(Event, frozen=True):
    """The pool's whole state, for a subscriber that lost batches; replaces all that it knew."""

    num_blocks: int
    block_size: int
    bytes_per_block: int
    reserved: int
    ref_counts: list[int]  # per block id
    hashes: list[BlockHash | None]  # per block id; None: holds nothing that can be found
    lru: list[int]  # cached blocks, the next to be evicted first


class RequestArrived(Event, frozen=True):
    """A request passed validation and entered the waiting queue."""

    request: int
    prompt_tokens: int
    max_tokens: int
    tenant: str = ""
    trace_id: str = ""  # 32 hex digits of the caller's traceparent, or empty


class RequestRejected(Event, frozen=True):
    """A request was refused at the door; it never had an id."""

    reason: RejectReason


class PrefixLookup(Event, frozen=True):
    """The prefix cache was asked; once per admission, its retries do not count again."""

    request: int
    queried_tokens: int  # all tokens of the request, partial last block included
    hashes: list[BlockHash]  # of the full blocks that may hit; one token is always computed
    hit_blocks: int  # leading blocks found
    resumed: bool = False  # the request had been preempted


class BlocksAllocated(Event, frozen=True):
    """Free (or just evicted) blocks became active with one reference."""

    request: int
    blocks: list[int]
    cause: AllocationCause


class BlocksShared(Event, frozen=True):
    """Each block's reference count went up by one; cached blocks became active."""

    request: int
    blocks: list[int]
    cause: SharingCause


class BlocksCached(Event, frozen=True):
    """Active blocks became full and findable; consecutive children of `parent`."""

    request: int
    blocks: list[int]
    hashes: list[BlockHash]
    parent: BlockHash | None  # None: the first block of a sequence is the first of these


class BlocksEvicted(Event, frozen=True):
    """Cached blocks lost their content and became free, the oldest first."""

    blocks: list[int]
    hashes: list[BlockHash]
    cause: EvictionCause


class BlocksReleased(Event, frozen=True):
    """A request gave all its blocks back, one reference each; split by what became of them."""

    request: int
    cached: list[int]  # entered the evictor in this order, tail of the sequence first
    free: list[int]  # held nothing findable
    shared: list[int]  # still referenced by others
    cause: ReleaseCause


class DeviceMemorySampled(Event, frozen=True):
    """The engine's own view of its device memory, every second and after an out-of-memory error.

    Bytes. None: the allocator does not say (no CUDA, or a backend without that statistic). The
    figures of torch are those of one moment; weights and KV pool are constant.
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
    """The pool could not serve a running request: what triggers preemption."""

    request: int
    wanted: int  # blocks
    available: int  # free and evictable blocks


class RequestPreempted(Event, frozen=True):
    """A running request lost its blocks and waits again."""

    request: int
    mode: PreemptionMode
    cause: PreemptionCause
    discarded_tokens: int  # tokens whose KV had been computed or found
    blocks: int  # references given back
    age_ns: int  # since it was last (re)admitted


class RequestResumed(Event, frozen=True):
    """A preempted request runs again."""

    request: int
    recompute_tokens: int  # of the discarded ones, those the cache no longer held
    cached_tokens: int  # of the discarded ones, those found again
    stalled_ns: int  # since the preemption


class RequestScheduled(Event, frozen=True):
    """A request runs for the first time."""

    request: int
    queue_ns: int  # since arrival
    cached_tokens: int


class FirstToken(Event, frozen=True):
    """A request produced its first token."""

    request: int
    elapsed_ns: int  # since arrival


class RequestFinished(Event, frozen=True):
    """A request left the engine, whatever the reason. Times not reached are None, never 0."""

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
    computed_tokens: int | None = None  # prompt tokens computed, not found, at the first admission


class StepCompleted(Event, frozen=True):
    """One step ended: the heartbeat, and the engine's own count of its blocks to check against."""

    duration_ns: int
    running: int
    waiting: int
    swapped: int
    prefill_tokens: int  # computed for requests that owed more than their newest token
    decode_tokens: int
    slots_filled: int  # token slots written in active blocks, each block once
    active_blocks: int
    cached_blocks: int
    free_blocks: int
    emitted: list[int]  # requests that produced a token in this step


EngineEvent = (
    PoolCreated
    | PoolSnapshot
    | RequestArrived
    | RequestRejected
    | PrefixLookup
    | BlocksAllocated
    | BlocksShared
    | BlocksCached
    | BlocksEvicted
    | BlocksReleased
    | DeviceMemorySampled
    | DeviceOutOfMemory
    | AllocationFailed
    | RequestPreempted
    | RequestResumed
    | RequestScheduled
    | FirstToken
    | RequestFinished
    | StepCompleted
)


class Batch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All events of one step, in order. `seq` grows by exactly one; a gap is a loss."""

    seq: int
    time_ns: int  # monotonic, of the emitting process
    events: list[EngineEvent]
