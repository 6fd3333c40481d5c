"""A short, complete run of an engine by hand: every family moves. For the golden page."""

from typing import Any

from kvscope_events.bus import Subscription
from kvscope_events.events import (
    AllocationFailed,
    BlockCopied,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    DeviceMemorySampled,
    DeviceOutOfMemory,
    EngineEvent,
    FirstToken,
    PoolCreated,
    PrefixCacheReset,
    PrefixLookup,
    RequestArrived,
    RequestPreempted,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    SequenceAdded,
)
from tests.exporter.machine import GIB, NOW_NS, SERVER_PID, UUID
from tests.exporter.stream import block_hash, ended, finished, put, step

MS = 1_000_000
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
A, B, C = block_hash(1), block_hash(2), block_hash(3)

GAVE_UP: dict[str, Any] = {
    "reason": "abort",
    "prompt_tokens": 9,
    "output_tokens": 0,
    "max_tokens": 8,
    "elapsed_ns": 2 * MS,
    "queue_ns": 0,
}

MEMORY = DeviceMemorySampled(
    pid=SERVER_PID,
    device_uuid=UUID,
    weights_bytes=16 * GIB,
    kv_pool_bytes=24 * GIB,
    allocated_bytes=41 * GIB,
    active_bytes=42 * GIB,
    reserved_bytes=46 * GIB,
    requested_bytes=41 * GIB - 512,
    inactive_split_bytes=GIB,
    allocated_peak_bytes=44 * GIB,
    reserved_peak_bytes=47 * GIB,
    alloc_retries=1,
    ooms=1,
    activation_peak_bytes=4 * GIB,
    pinned_host_bytes=GIB,
)

STEPS: tuple[list[EngineEvent], ...] = (
    [
        PoolCreated(
            *(10, 4, 4096, 1),
            {"total": 65_536, "requested": 58_982, "kv_pool": 40_960, "unclaimed": 24_576},
        ),
        PrefixCacheReset(0),
        RequestRejected("queue_full"),
        RequestArrived(0, 9, 8, "tenant", TRACE),
        SequenceAdded(0, 0, 9, 8),
        PrefixLookup(0, 9, [A, B], 0),
        BlocksAllocated(0, [1, 2, 3], "prefill"),
        RequestScheduled(0, 3 * MS, 0),
        BlocksCached(0, [1, 2], [A, B], None),
        FirstToken(0, 30 * MS),
        step(
            running=1,
            prefill_tokens=9,
            slots_filled=9,
            active_blocks=3,
            free_blocks=6,
            emitted=[0],
            first_tokens=[0],
        ),
    ],
    [
        RequestArrived(1, 9, 8),
        SequenceAdded(1, 1, 9, 8),
        PrefixLookup(1, 9, [A, C], 1),
        BlocksShared(1, [1], "prefix_hit"),
        BlocksAllocated(1, [4, 5], "prefill"),
        RequestScheduled(1, 700 * MS, 4),
        BlocksCached(1, [4], [C], A),
        FirstToken(1, 900 * MS),
        step(
            running=2,
            prefill_tokens=5,
            decode_tokens=1,
            slots_filled=15,
            active_blocks=5,
            free_blocks=4,
            emitted=[0, 1],
            first_tokens=[1],
            duration_ns=25 * MS,
        ),
    ],
    [
        DeviceOutOfMemory(GIB, "retried", 8, 4),
        MEMORY,
        AllocationFailed(0, 1, 0),
        BlocksReleased(1, [4], [5], [1], "preempted"),
        RequestPreempted(1, 1, "recompute", "out_of_blocks", 9, 3, 40 * MS),
        BlocksEvicted([4], [C], "capacity"),
        BlocksAllocated(0, [4], "decode"),
        step(
            running=1,
            waiting=1,
            decode_tokens=1,
            slots_filled=11,
            active_blocks=4,
            free_blocks=5,
            emitted=[0],
        ),
    ],
    [
        BlocksReleased(0, [2, 1], [4, 3], [], "finished"),
        ended(0, reason="length", prompt_tokens=9, max_tokens=8, computed_tokens=9),
        finished(0, reason="length", prompt_tokens=9, max_tokens=8),
        PrefixLookup(1, 10, [A, C], 1, resumed=True),
        BlocksShared(1, [1], "prefix_hit"),
        BlocksAllocated(1, [5, 6], "prefill"),
        RequestResumed(1, 1, 5, 4, 60 * MS),
        # A caller who gives up at once: it had asked for C, which had been evicted.
        RequestArrived(2, 9, 8),
        SequenceAdded(2, 2, 9, 8),
        PrefixLookup(2, 9, [A, C], 1),
        BlocksShared(2, [1], "prefix_hit"),
        BlocksAllocated(2, [7, 8], "prefill"),
        RequestScheduled(2, 0, 4),
        BlocksReleased(2, [], [8, 7], [1], "aborted"),
        ended(2, **GAVE_UP, prefill_ns=None, decode_ns=None),
        finished(2, **GAVE_UP),
        BlocksCached(1, [5], [C], A),
        # A second sample of 1, which goes as soon as 1 has written on.
        BlocksShared(3, [1, 5, 6], "fork"),
        BlocksAllocated(1, [7], "cow"),
        BlockCopied(1, 6, 7),
        BlocksReleased(1, [], [], [6], "cow"),
        BlocksReleased(3, [], [6], [5, 1], "aborted"),
        step(
            running=1,
            prefill_tokens=6,
            slots_filled=10,
            active_blocks=3,
            cached_blocks=1,
            free_blocks=5,
            emitted=[0, 1],
        ),
    ],
)


def play(subscription: Subscription, steps: tuple[list[EngineEvent], ...] = STEPS) -> None:
    """Queue the run's batches, 20 ms apart, the last one a second before the fixed clock."""
    for seq, events in enumerate(steps):
        age_ns = 1000 * MS + (len(steps) - 1 - seq) * 20 * MS
        put(subscription, seq, NOW_NS - age_ns, *events)
