"""The events that each producer reports, as its `Hello` claims and the documentation lists them.

A new event belongs to our own engine unless it is taken out here, and to no other producer.
"""

from collections.abc import Collection

from kvscope_events.events import EVENT_NAMES

_ALL = frozenset(EVENT_NAMES)


def _named(*events: str) -> frozenset[str]:
    assert _ALL.issuperset(events), f"not events: {sorted(set(events) - _ALL)}"
    return frozenset(events)


CONTENT_EVENTS = _named("NamesStored", "NamesRemoved", "NamesCleared")
"""Events of a content stream, which names what is cached and knows no blocks."""
OFFLOAD_EVENTS = CONTENT_EVENTS | _named("TierCreated", "TierTransferred")
"""Events of an engine that keeps copies of blocks in a tier below its pool, about that tier."""
SWAP_EVENTS = _named("BlocksSwapped")
"""Events of an engine that keeps the KV of preempted sequences on the host."""
LOOKUP_EVENTS = _named("PrefixLookup")
"""Events that need a prefix cache. Without one it is still known that no block is ever cached."""
TOKEN_EVENTS = _named("FirstToken")
"""Events of generating models; models for embeddings and scores have none of them."""

COUNTED_EVENTS = _named(
    "PoolCounted",
    *("PagesAllocated", "PagesShared", "PagesCached", "PagesReleased", "PagesEvicted"),
)
"""Events of an engine whose pool is counted: they stand for those that name blocks by number."""
LOAD_EVENTS = _named("PagesLoaded")
"""Events of such an engine with a tier below its pool."""

ENGINE_EVENTS = (
    _ALL
    - COUNTED_EVENTS
    - LOAD_EVENTS
    - OFFLOAD_EVENTS
    - SWAP_EVENTS
    - _named("ObserverStopped", "ContentDropped", "StartupProfiled", "StartProgressed")
    - _named("AnswerSent", "FrontEndSampled")  # it counts its own answers
)
"""Our own engine never stops observing itself, never drops a referenced block's content, and knows
its start-up figures when it creates the pool. With a swap space it reports SWAP_EVENTS as well."""

VLLM_WORKER_EVENTS = _named(
    *("Hello", "ObserverStopped", "DeviceMemorySampled", "StartupProfiled", "StartProgressed")
)
"""Events that the observer reports from a worker's process, which owns the memory."""
VLLM_FRONT_END_EVENTS = _named("Hello", "ObserverStopped", "AnswerSent", "FrontEndSampled")
"""Events that the observer reports from the process of an API server."""
VLLM_SCHEDULER_EVENTS = _named(
    "Hello",
    "ObserverStopped",
    *("PoolCreated", "PoolSnapshot"),
    *("RequestArrived", "SequenceAdded", "RequestScheduled", "FirstToken"),
    *("SequenceFinished", "RequestFinished", "RequestPreempted", "RequestResumed"),
    *("PrefixLookup", "PrefixCacheReset"),
    *("BlocksAllocated", "BlocksShared", "BlocksCached", "BlocksEvicted", "BlocksReleased"),
    *("ContentDropped", "AllocationFailed"),
    *("StepScheduled", "StepCompleted"),
)
"""Events that the observer reports from the scheduler's process.

It has no memory (workers report that), refuses nothing (the front end does, in another process),
dies of a device without memory, recomputes where we may swap, and forks nothing: copies of state
are reported as shares. With offloading to host memory it reports OFFLOAD_EVENTS as well.
"""
VLLM_EVENTS = VLLM_SCHEDULER_EVENTS | VLLM_WORKER_EVENTS | VLLM_FRONT_END_EVENTS

SGLANG_SCHEDULER_EVENTS = COUNTED_EVENTS | _named(
    *("Hello", "ObserverStopped", "PoolCreated"),
    *("RequestArrived", "SequenceAdded", "RequestScheduled", "FirstToken"),
    *("SequenceFinished", "RequestFinished", "RequestPreempted", "RequestResumed"),
    *("PrefixLookup", "PrefixCacheReset"),
    *("StepScheduled", "StepCompleted"),
)
"""Events that the observer reports from SGLang's scheduler. With names, CONTENT_EVENTS as well;
with a tier below the pool, OFFLOAD_EVENTS and LOAD_EVENTS."""
SGLANG_RANK_EVENTS = _named("Hello", "ObserverStopped", "StartProgressed")
"""Events that the observer reports from the process of each rank, from its start on."""
SGLANG_EVENTS = SGLANG_SCHEDULER_EVENTS | SGLANG_RANK_EVENTS

KV_STREAM_EVENTS = CONTENT_EVENTS
"""Events of a server that publishes KV events; kvscope writes its Hello, without any facts."""


def in_order(events: Collection[str]) -> list[str]:
    """The names in the contract's order, as a Hello has them."""
    return [name for name in EVENT_NAMES if name in events]
