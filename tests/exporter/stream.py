"""Streams of events by hand: heartbeats, ends of requests, batches, a brute-force pool."""

from dataclasses import dataclass, field
from typing import Any

from kvscope_events.bus import EventBus, Subscription
from kvscope_events.events import (
    CONTRACT_VERSION,
    Batch,
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    CacheGroup,
    ContentDropped,
    EngineEvent,
    Hello,
    PoolCreated,
    PoolSnapshot,
    RequestFinished,
    SequenceFinished,
    StepCompleted,
)
from kvscope_events.producers import ENGINE_EVENTS
from kvscope_events.vocabulary import ContentCause, ReleaseCause
from tests.exporter.machine import SERVER_PID


def hello(**changes: Any) -> Hello:
    """Our engine with a demo model, ready, but for the changes."""
    fields: dict[str, Any] = {
        "contract": CONTRACT_VERSION,
        "session": "0" * 16,
        "server": "kvscope",
        "server_version": "0.1.0",
        "model_name": "demo",
        "engine": "0",
        "pid": SERVER_PID,
        "ready": True,
        "tells": sorted(ENGINE_EVENTS),
        "max_model_len": 131_072,
        "enable_prefix_caching": True,
        "cache_dtype": "auto",
        "gpu_memory_utilization": 0.9,
    }
    return Hello(**{**fields, **changes})


HELLO = hello()


def block_hash(number: int) -> bytes:
    return number.to_bytes(16, "big")


def step(**changes: Any) -> StepCompleted:
    """A heartbeat of an idle engine with an empty pool of 8, but for the changes.

    Each sequence is a request of its own unless the changes say otherwise.
    """
    fields: dict[str, Any] = {
        "duration_ns": 10_000_000,
        "running": 0,
        "waiting": 0,
        "swapped": 0,
        "prefill_tokens": 0,
        "decode_tokens": 0,
        "slots_filled": 0,
        "active_blocks": 0,
        "cached_blocks": 0,
        "free_blocks": 8,
        "emitted": [],
        "first_tokens": [],
        "requests_running": changes.get("running", 0),
        "requests_waiting": changes.get("waiting", 0),
    }
    return StepCompleted(**{**fields, **changes})


def ended(sequence: int, **changes: Any) -> SequenceFinished:
    """A sequence that stopped after five tokens, a second after its request came.

    The request has the same number unless the changes say otherwise.
    """
    fields: dict[str, Any] = {
        "request": sequence,
        "reason": "stop",
        "prompt_tokens": 40,
        "output_tokens": 5,
        "max_tokens": 64,
        "preemptions": 0,
        "elapsed_ns": 1_000_000_000,
        "queue_ns": 100_000_000,
        "prefill_ns": 500_000_000,
        "decode_ns": 400_000_000,
    }
    return SequenceFinished(sequence, **{**fields, **changes})


def finished(request: int, **changes: Any) -> RequestFinished:
    """A request of one sequence that stopped after five tokens, a second after it came."""
    fields: dict[str, Any] = {
        "reason": "stop",
        "prompt_tokens": 40,
        "output_tokens": 5,
        "max_tokens": 64,
        "preemptions": 0,
        "elapsed_ns": 1_000_000_000,
        "queue_ns": 100_000_000,
    }
    return RequestFinished(request, **{**fields, **changes})


def batch_of(*events: EngineEvent, seq: int = 0, time_ns: int = 0, wall_ns: int = 0) -> Batch:
    """A batch that arrived when it was sent, on one clock."""
    return Batch(seq, time_ns, list(events), wall_ns, time_ns)


def put(subscription: Subscription, seq: int, time_ns: int, *events: EngineEvent) -> None:
    """Hand a batch over as the bus would, with the sequence number and time of the test."""
    subscription.put(batch_of(*events, seq=seq, time_ns=time_ns, wall_ns=time_ns))


@dataclass
class ModelPool:
    """A pool as slow and plain as can be; reports every call to a bus."""

    bus: EventBus
    num_blocks: int = 8
    block_size: int = 4
    reserved: int = 1
    ref_counts: list[int] = field(default_factory=list)
    hashes: list[bytes | None] = field(default_factory=list)
    lru: list[int] = field(default_factory=list)
    memory_terms: dict[str, int] = field(default_factory=lambda: {"total": 9, "kv_pool": 4})
    groups: list[CacheGroup] = field(default_factory=lambda: [CacheGroup("full_attention", 4)])

    def __post_init__(self) -> None:
        self.ref_counts = [0] * self.num_blocks
        self.hashes = [None] * self.num_blocks
        self.bus.emit(HELLO)
        self.bus.emit(
            PoolCreated(
                self.num_blocks,
                self.block_size,
                64,
                self.reserved,
                self.memory_terms,
                self.groups,
            )
        )

    @property
    def free(self) -> list[int]:
        return [
            block
            for block in range(self.reserved, self.num_blocks)
            if not self.ref_counts[block] and block not in self.lru
        ]

    @property
    def active(self) -> list[int]:
        return [block for block in range(self.num_blocks) if self.ref_counts[block]]

    def allocate(self, sequence: int, count: int) -> list[int]:
        while len(self.free) < count:
            self.evict(1)
        blocks = self.free[:count]
        for block in blocks:
            self.ref_counts[block] = 1
        self.bus.emit(BlocksAllocated(sequence, blocks.copy(), "prefill"))
        return blocks

    def evict(self, count: int) -> None:
        blocks = [self.lru.pop(0) for _ in range(count)]
        hashes = []
        for block in blocks:
            name = self.hashes[block]
            assert name is not None
            hashes.append(name)
            self.hashes[block] = None
        self.bus.emit(BlocksEvicted(blocks, hashes, "capacity"))

    def share(self, sequence: int, blocks: list[int]) -> None:
        for block in blocks:
            self.ref_counts[block] += 1
            if block in self.lru:
                self.lru.remove(block)
        self.bus.emit(BlocksShared(sequence, blocks, "prefix_hit"))

    def cache(self, sequence: int, block: int, name: bytes) -> None:
        self.hashes[block] = name
        self.bus.emit(BlocksCached(sequence, [block], [name], None))

    def drop(self, block: int, cause: ContentCause) -> None:
        name = self.hashes[block]
        assert name is not None
        self.hashes[block] = None
        if block in self.lru:
            self.lru.remove(block)
        self.bus.emit(ContentDropped([block], [name], cause))

    def release(
        self, sequence: int | None, blocks: list[int], cause: ReleaseCause = "finished"
    ) -> None:
        cached: list[int] = []
        free: list[int] = []
        shared: list[int] = []
        for block in reversed(blocks):
            self.ref_counts[block] -= 1
            if self.ref_counts[block]:
                shared.append(block)
            elif self.hashes[block] is None:
                free.append(block)
            else:
                cached.append(block)
        self.lru += cached
        self.bus.emit(BlocksReleased(sequence, cached, free, shared, cause))

    def heartbeat(self) -> None:
        """End the step with the pool's own counts."""
        self.bus.emit(
            step(
                active_blocks=len(self.active),
                cached_blocks=len(self.lru),
                free_blocks=len(self.free),
                slots_filled=len(self.active) * self.block_size - 1 if self.active else 0,
            )
        )
        self.bus.flush()

    def snapshots(self) -> list[EngineEvent]:
        """For `EventBus.provide_snapshot`."""
        return [self.snapshot()]

    def snapshot(self) -> PoolSnapshot:
        return PoolSnapshot(
            self.num_blocks,
            self.block_size,
            64,
            self.reserved,
            self.ref_counts.copy(),
            self.hashes.copy(),
            self.lru.copy(),
            self.memory_terms,
            self.groups,
        )
