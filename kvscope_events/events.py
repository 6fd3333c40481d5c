"""The contract between an engine and its observers: typed events, one batch of them per step.

Fields are append-only and have defaults once released; a tag is never reused. An event owns its
lists: the emitter hands them over and never changes them again.

A request is one call of a client; a sequence is one continuation of it (`n`, several prompts).
Block events name the sequence, request events count calls. Requests and sequences are numbered
apart, each upwards from one in an engine. A producer that knows only sequences gives each one a
request of its own, with the same number, and declares it in its `Hello` (`requests_are`).
Intervals (`*_ns`) come from the producer's monotonic clock.

All events can be imported from here. Those of requests, of whole pools, of pools whose blocks are
only counted, of content by name and of device memory are declared in `requests.py`, `pools.py`,
`counted.py`, `names.py` and `memory.py`.
"""

from typing import Annotated, Union, get_args

import msgspec

from kvscope_events.counted import PagesAllocated as PagesAllocated
from kvscope_events.counted import PagesCached as PagesCached
from kvscope_events.counted import PagesEvicted as PagesEvicted
from kvscope_events.counted import PagesLoaded as PagesLoaded
from kvscope_events.counted import PagesReleased as PagesReleased
from kvscope_events.counted import PagesShared as PagesShared
from kvscope_events.counted import PoolCounted as PoolCounted
from kvscope_events.event import Event, Fact
from kvscope_events.limits import (
    EVENTS,
    Blocks,
    Count,
    Finite,
    GroupCounts,
    GroupIndex,
    Hash,
    Label,
    Name,
    Names,
    Settings,
    Time,
)
from kvscope_events.memory import DeviceMemorySampled as DeviceMemorySampled
from kvscope_events.memory import DeviceOutOfMemory as DeviceOutOfMemory
from kvscope_events.memory import StartProgressed as StartProgressed
from kvscope_events.memory import StartupProfiled as StartupProfiled
from kvscope_events.names import NamesCleared as NamesCleared
from kvscope_events.names import NamesRemoved as NamesRemoved
from kvscope_events.names import NamesStored as NamesStored
from kvscope_events.names import TierCreated as TierCreated
from kvscope_events.names import TierTransferred as TierTransferred
from kvscope_events.pools import BlockCopied as BlockCopied
from kvscope_events.pools import BlocksSwapped as BlocksSwapped
from kvscope_events.pools import CacheGroup as CacheGroup
from kvscope_events.pools import PoolCreated as PoolCreated
from kvscope_events.pools import PoolSnapshot as PoolSnapshot
from kvscope_events.pools import PrefixCacheReset as PrefixCacheReset
from kvscope_events.requests import AnswerSent as AnswerSent
from kvscope_events.requests import FirstToken as FirstToken
from kvscope_events.requests import FrontEndSampled as FrontEndSampled
from kvscope_events.requests import RequestArrived as RequestArrived
from kvscope_events.requests import RequestFinished as RequestFinished
from kvscope_events.requests import RequestPreempted as RequestPreempted
from kvscope_events.requests import RequestRejected as RequestRejected
from kvscope_events.requests import RequestResumed as RequestResumed
from kvscope_events.requests import RequestScheduled as RequestScheduled
from kvscope_events.requests import SequenceAdded as SequenceAdded
from kvscope_events.requests import SequenceFinished as SequenceFinished
from kvscope_events.vocabulary import (
    AdmissionStop,
    AllocationCause,
    ContentCause,
    Deferral,
    EvictionCause,
    ReleaseCause,
    RequestUnit,
    ServerKind,
    SharingCause,
    Tier,
)

CONTRACT_VERSION = 1
"""Grows when an older reader would misread a newer stream. New events and fields do not need it,
nor do new words in events that a reader may miss. A new word in an event that moves blocks needs
it: without that event an older reader's ledger is wrong."""

BlockHash = Hash
"""Name of a full block: digest of its content and of all blocks before it, 16 bytes.

In a pool of several groups the last four bytes are the group's index instead, big-endian, and the
others are the same in every group: see `kvscope_events.names`.
"""


class Hello(Fact, frozen=True):
    """The producer introduces itself: first in a stream, before a snapshot, and when a fact
    changes.

    None: not known, or not known yet.
    """

    contract: int
    session: Label  # differs between two runs of a producer: another session starts over
    server: ServerKind
    server_version: Label
    model_name: Label  # the name under which it is served
    engine: Label  # the data-parallel rank as text
    pid: int
    ready: bool  # the model is loaded and the engine takes requests
    tells: Names  # names of the events that this producer can emit
    requests_are: RequestUnit = "call"
    max_model_len: Count | None = None  # tokens of the longest sequence
    enable_prefix_caching: bool | None = None
    cache_dtype: Label | None = None  # of K and V
    gpu_memory_utilization: Finite | None = None  # None: the pool was not sized by a share
    prefix_caching_hash_algo: Label | None = None
    pid_space: Label | None = None  # where the pid holds; see kvscope_events.pid_space
    # Of a process beside the scheduler: the rank of one that reports its start and its memory only,
    # or the name of a front end, which reports answers only; None: the scheduler's.
    worker: Label | None = None
    pool_sized_by: Label | None = None  # the server option that set the pool's size
    # Digest of all that block names depend on: the model as far as it is known, the block size, the
    # hash algorithm, the root of the chain. Only names of one name space may be compared.
    name_space: Label | None = None
    # Blocks may outlive their request, since a connector keeps them; None: not known.
    keeps_blocks: bool | None = None
    # Numbers that the server runs with, by its own names, as far as its pool or its queue depends
    # on them.
    settings: Settings = {}
    pool_device: Name | None = None  # torch's type of the device that holds the pool, such as cpu
    # The server's own name for the order in which cached content is evicted; None: not known.
    eviction_policy: Label | None = None
    # A worker's: the scheduler of its engine runs on another host, whose page has the engine.
    remote: bool = False
    # A front end's: engines on its host, from `engine` on; others are on pages there. None: all.
    local_engines: Count | None = None
    # The order in which waiting calls are admitted, by the server's own name; None: not known.
    scheduling_policy: Label | None = None


class ObserverStopped(Fact, frozen=True):
    """The last event before a gap: the producer observes nothing from here on.

    By a fault of its own for good, by order until a Hello and the state follow."""

    reason: str


class PrefixLookup(Event, frozen=True):
    """The prefix cache was queried, once for each admission: retries of one do not count again."""

    sequence: int
    queried_tokens: Count  # all tokens of the sequence, partial last block included
    hashes: list[BlockHash]  # of the full blocks that may hit; one token is always computed
    hit_blocks: Count  # leading blocks found
    resumed: bool = False  # the sequence had been preempted
    loaded_tokens: Count = 0  # behind the hits: supplied by a tier below the pool or a connector
    loaded_from: Tier | None = None  # the tier that supplies them; None: none, or not known
    # Tokens that each group alone would have allowed, in the order of the pool's groups. Empty: the
    # pool has one group, or it is not known.
    group_hit_tokens: GroupCounts = []
    named: bool = True  # False: the producer does not know the names; `hashes` is empty


class BlocksAllocated(Event, frozen=True):
    """Free (or just evicted) blocks became active with one reference, all in the same group."""

    sequence: int | None  # None: the owner is not known
    blocks: list[int]
    cause: AllocationCause
    group: GroupIndex | None = None  # None: the pool has one group, or it is not known


class BlocksShared(Event, frozen=True):
    """Each block's reference count went up by one; cached blocks became active."""

    sequence: int | None
    blocks: list[int]
    cause: SharingCause
    group: GroupIndex | None = None  # of all of them; None: the only group, or not known


class BlocksCached(Event, frozen=True):
    """Active blocks became full and findable: consecutive descendants of `parent`."""

    sequence: int | None
    blocks: list[int]
    hashes: list[BlockHash]
    parent: BlockHash | None  # None: the first of them is the first block of a sequence


class BlocksEvicted(Event, frozen=True):
    """Cached blocks lost their content and became free, the oldest first."""

    blocks: list[int]
    hashes: list[BlockHash]
    cause: EvictionCause


class ContentDropped(Event, frozen=True):
    """Referenced blocks can no longer be found under these names; their references stay.

    Content that moved to another block becomes findable again by the BlocksCached that follows.
    """

    blocks: list[int]
    hashes: list[BlockHash]
    cause: ContentCause


class BlocksReleased(Event, frozen=True):
    """References were given back, one for each block named; split by the fate of the blocks.

    With cause finished, aborted, preempted or swapped_out these are all references of the sequence
    in the group; with any other cause they are some of them, in mid-request. In a group of states,
    those `out_of_window` are states that a newer one superseded.

    A sequence may keep blocks after its SequenceFinished, while they are sent elsewhere or stored
    in another tier: those blocks are held until this event names them.
    """

    sequence: int | None
    cached: list[int]  # entered the evictor in this order, tail of the sequence first
    free: list[int]  # held nothing findable
    shared: list[int]  # still referenced by others
    cause: ReleaseCause
    group: GroupIndex | None = None  # of all of them; None: the only group, or not known


class AllocationFailed(Event, frozen=True):
    """The pool could not serve a running sequence, which leads to a preemption."""

    sequence: int
    wanted: Blocks
    available: Blocks  # free and evictable blocks


class StepCompleted(Event, frozen=True):
    """One step ended: the heartbeat, with the engine's own block counts to check the ledger."""

    duration_ns: Count
    running: Count  # sequences
    waiting: Count  # sequences, those that are swapped out included
    swapped: Count  # sequences that wait with their KV on the host
    prefill_tokens: Count  # computed for sequences that owed more than their newest token
    decode_tokens: Count
    slots_filled: Count | None  # token slots written in active blocks, each once; None: not known
    active_blocks: Blocks
    cached_blocks: Blocks
    free_blocks: Blocks
    emitted: list[int]  # sequences that produced a token in this step
    first_tokens: list[int]  # those of them that produced their first one
    requests_running: Count  # requests with at least one running sequence
    requests_waiting: Count  # requests without a running sequence
    output_tokens: Count | None = None  # produced in this step; None: one for each of `emitted`
    requests_swapped: Count = 0  # of requests_waiting those with a sequence that is swapped out
    # Speculative decoding in this step; None: not used, or not known.
    drafted_tokens: Count | None = None  # proposed, each with a slot in the pool
    accepted_tokens: Count | None = None  # of them, those that became output
    emitted_tokens: list[Count] = []  # by each of `emitted`; empty: one each, or not known
    # Of active_blocks, those that can be found; None: the pool is not a counted one.
    protected_blocks: Blocks | None = None
    admission_stop: AdmissionStop | None = None  # what kept the step from admitting more requests
    # Sequences that wait for something of their own, and what each of them waits for.
    deferred: list[int] = []
    deferred_by: list[Deferral] = []


class StepScheduled(Event, frozen=True):
    """A step that computes part of a prompt was put together; its allocations came before.

    A pool whose groups of layers differ sends one for every step: with it, and only with it, can
    such a pool be simulated at another size.
    """

    sequences: list[int]  # those that compute more than their newest token: chunks of prompts
    tokens: list[Count]  # how many of those tokens each of them computes
    room: Count  # tokens that the step could have computed besides


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
    StartupProfiled,
    NamesStored,
    NamesRemoved,
    NamesCleared,
    BlockCopied,
    BlocksSwapped,
    StepScheduled,
    TierCreated,
    TierTransferred,
    PoolCounted,
    PagesAllocated,
    PagesShared,
    PagesCached,
    PagesReleased,
    PagesEvicted,
    PagesLoaded,
    AnswerSent,
    StartProgressed,
    FrontEndSampled,
]

EVENT_NAMES: tuple[str, ...] = tuple(event.__name__ for event in get_args(EngineEvent))
"""The names of all events, the allowed values of `Hello.tells`."""


class Batch(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All events of one step, in order. `seq` grows by exactly one; a gap is a loss."""

    seq: int
    time_ns: Time  # the producer's monotonic clock, for intervals within the stream
    events: Annotated[list[EngineEvent], EVENTS]
    wall_ns: Time = 0  # the producer's wall clock, for display; 0: not known
    arrived_ns: int = 0  # the reader's monotonic clock, set by its source, for ages and lag
