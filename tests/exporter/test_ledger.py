"""The ledger equals a brute-force pool after every step, and says so when it cannot."""

from collections.abc import Callable
from random import Random
from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvscope_events.bus import EventBus
from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    CacheGroup,
    ContentDropped,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
)
from kvscope_events.vocabulary import ContentCause, ReleaseCause
from kvscope_exporter.state import Ledger
from tests.exporter.stream import ModelPool, batch_of, block_hash, step


class LedgerFollowsPool(RuleBasedStateMachine):
    """Sequences come, share, fill blocks, lose some and go; each step is one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.bus = EventBus()
        self.subscription = self.bus.subscribe()
        self.pool = ModelPool(self.bus)
        self.bus.provide_snapshot(self.pool.snapshots)
        self.ledger = Ledger()
        self.tables: dict[int, list[int]] = {}
        self.next_sequence = 0
        self.follow()

    def follow(self) -> None:
        self.pool.heartbeat()
        while (taken := self.subscription.take()) is not None:
            self.ledger.on_batch(taken[0])

    @rule(count=st.integers(1, 4))
    def admit(self, count: int) -> None:
        if len(self.pool.free) + len(self.pool.lru) >= count:
            self.tables[self.next_sequence] = self.pool.allocate(self.next_sequence, count)
            self.next_sequence += 1
        self.follow()

    @rule(choice=st.randoms(use_true_random=False))
    def share(self, choice: Random) -> None:
        named = [block for block, name in enumerate(self.pool.hashes) if name is not None]
        if named:
            blocks = choice.sample(named, choice.randint(1, len(named)))
            self.pool.share(self.next_sequence, blocks)
            self.tables[self.next_sequence] = blocks
            self.next_sequence += 1
        self.follow()

    @rule(name=st.integers(0, 5))
    def fill(self, name: int) -> None:
        for block in self.pool.active:
            if self.pool.hashes[block] is None:
                self.pool.cache(0, block, block_hash(name))  # duplicates of a name are legal
                break
        self.follow()

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.tables)))
        self.pool.release(sequence, self.tables.pop(sequence))
        self.follow()

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), cause=st.sampled_from(["out_of_window", "cow", "failed_load"]))
    def release_in_mid_request(self, data: st.DataObject, cause: ReleaseCause) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.tables)))
        table = self.tables[sequence]
        count = data.draw(st.integers(0, len(table)))
        self.tables[sequence] = table[count:]
        self.pool.release(sequence, table[:count], cause)
        self.follow()

    @precondition(lambda self: any(name is not None for name in self.pool.hashes))
    @rule(data=st.data(), cause=st.sampled_from(get_args(ContentCause)))
    def lose_content(self, data: st.DataObject, cause: ContentCause) -> None:
        named = [block for block, name in enumerate(self.pool.hashes) if name is not None]
        block = data.draw(st.sampled_from(named))
        self.pool.drop(block, cause)
        self.follow()

    @precondition(lambda self: self.pool.lru)
    @rule()
    def evict(self) -> None:
        self.pool.evict(1)
        self.follow()

    @rule()
    def resynchronise(self) -> None:
        self.ledger.on_gap()
        assert not self.ledger.known
        self.subscription.request_snapshot()
        self.follow()

    @invariant()
    def equals_the_pool(self) -> None:
        self.ledger.check()
        assert self.ledger.known
        assert self.ledger.imbalance == 0
        assert self.ledger.state() == self.pool.snapshot()
        assert self.ledger.num_active == len(self.pool.active)
        assert self.ledger.num_free == len(self.pool.free)
        assert self.ledger.num_shared == sum(1 for count in self.pool.ref_counts if count > 1)
        assert self.ledger.num_deduplicated == sum(self.pool.ref_counts) - len(self.pool.active)


TestLedgerFollowsPool = LedgerFollowsPool.TestCase
TestLedgerFollowsPool.settings = settings(stateful_step_count=30)


def ledger_with(*events: EngineEvent) -> Ledger:
    """A pool of 8 blocks of 4 tokens, 0 reserved: 1 is free, 2 cached, 3 active and findable."""
    ledger = Ledger()
    setup: list[EngineEvent] = [
        PoolCreated(8, 4, 64, 1),
        BlocksAllocated(0, [2, 3], "prefill"),
        BlocksCached(0, [2, 3], [block_hash(2), block_hash(3)], None),
        BlocksReleased(0, [2], [], [], "finished"),
        step(active_blocks=1, cached_blocks=1, free_blocks=5, slots_filled=3),
    ]
    ledger.on_batch(batch_of(*setup))
    assert ledger.imbalance == 0
    ledger.on_batch(batch_of(*events))
    ledger.check()
    return ledger


CONTRADICTIONS: dict[str, EngineEvent] = {
    "allocate an active block": BlocksAllocated(1, [3], "decode"),
    "allocate a cached block": BlocksAllocated(1, [2], "decode"),
    "allocate a reserved block": BlocksAllocated(1, [0], "decode"),
    "allocate a block beyond the pool": BlocksAllocated(1, [8], "decode"),
    "allocate a negative block": BlocksAllocated(1, [-1], "decode"),
    "share a free block": BlocksShared(1, [1], "prefix_hit"),
    "cache a free block": BlocksCached(1, [1], [block_hash(1)], None),
    "cache a block again": BlocksCached(1, [3], [block_hash(9)], None),
    "cache an unknown block": BlocksCached(1, [99], [block_hash(9)], None),
    "evict an active block": BlocksEvicted([3], [block_hash(3)], "capacity"),
    "evict a free block": BlocksEvicted([1], [block_hash(1)], "capacity"),
    "evict another content": BlocksEvicted([2], [block_hash(7)], "capacity"),
    "evict an unknown block": BlocksEvicted([99], [block_hash(7)], "capacity"),
    "drop another content": ContentDropped([3], [block_hash(7)], "replaced"),
    "drop the content of a free block": ContentDropped([1], [block_hash(1)], "invalid"),
    "drop the content of an unknown block": ContentDropped([99], [block_hash(1)], "invalid"),
    "release a cached block: double free": BlocksReleased(1, [2], [], [], "finished"),
    "release a free block: double free": BlocksReleased(1, [], [1], [], "finished"),
    "release to free what is findable": BlocksReleased(1, [], [3], [], "finished"),
    "release the last reference as shared": BlocksReleased(1, [], [], [3], "finished"),
}


@pytest.mark.parametrize("event", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_contradicting_event_is_one_block_of_imbalance(event: EngineEvent) -> None:
    assert ledger_with(event).imbalance == 1


def test_references_without_a_known_owner_are_references() -> None:
    ledger = ledger_with(
        BlocksShared(None, [3], "pin"), BlocksReleased(None, [], [], [3], "unpinned")
    )
    assert ledger.imbalance == 0
    assert ledger.num_shared == 0


def test_a_snapshot_states_the_terms_and_groups_anew() -> None:
    ledger = ledger_with()
    terms, groups = {"kv_pool": 7}, [CacheGroup("sliding_window", 4, 8)]
    ledger.apply(PoolSnapshot(8, 4, 64, 1, [0] * 8, [None] * 8, [], terms, groups))
    assert (ledger.memory_terms, ledger.groups) == (terms, groups)
    assert (ledger.state().memory_terms, ledger.state().groups) == (terms, groups)


def test_releasing_a_shared_block_as_free_or_cached_is_a_contradiction() -> None:
    share = BlocksShared(1, [3], "prefix_hit")
    assert ledger_with(share, BlocksReleased(1, [], [3], [], "finished")).imbalance == 1
    assert ledger_with(share, BlocksReleased(1, [3], [], [], "finished")).imbalance == 1


def test_a_block_without_content_cannot_be_released_to_the_cache() -> None:
    allocate = BlocksAllocated(1, [1], "decode")
    ledger = ledger_with(allocate, BlocksReleased(1, [1], [], [], "finished"))
    assert ledger.imbalance == 1
    assert ledger.num_cached == 1


def _leak(pool: ModelPool, table: list[int]) -> None:
    """The engine says that it released a block which it still counts as active."""
    pool.bus.emit(BlocksReleased(0, [], table, [], "finished"))


def _double_free(pool: ModelPool, table: list[int]) -> None:
    """The engine releases one table twice."""
    pool.release(0, table)
    pool.bus.emit(BlocksReleased(0, [], table, [], "finished"))


def _lost_event(pool: ModelPool, table: list[int]) -> None:
    """The engine changes its pool and says nothing."""
    silent = EventBus()
    pool.bus, bus = silent, pool.bus
    pool.release(0, table)
    pool.bus = bus


@pytest.mark.parametrize("fault", [_leak, _double_free, _lost_event])
def test_a_fault_of_the_engine_shows_within_the_step_and_a_snapshot_ends_it(
    fault: Callable[[ModelPool, list[int]], None],
) -> None:
    bus = EventBus()
    subscription = bus.subscribe()
    pool = ModelPool(bus)
    bus.provide_snapshot(pool.snapshots)
    ledger = Ledger()

    def follow() -> None:
        pool.heartbeat()
        while (taken := subscription.take()) is not None:
            ledger.on_batch(taken[0])

    table = pool.allocate(0, 3)
    follow()
    assert ledger.imbalance == 0
    fault(pool, table)
    follow()
    assert ledger.imbalance == 3
    subscription.request_snapshot()
    follow()
    assert ledger.imbalance == 0
    assert ledger.state() == pool.snapshot()


def test_an_unknown_state_ignores_events_until_a_snapshot() -> None:
    ledger = ledger_with()
    ledger.on_gap()
    ledger.on_batch(batch_of(*CONTRADICTIONS.values(), step(active_blocks=7)))
    assert not ledger.known
    assert ledger.imbalance == 0
    hashes: list[bytes | None] = [None] * 8
    ledger.apply(PoolSnapshot(8, 4, 64, 1, [0] * 8, hashes, []))
    assert ledger.known
    assert ledger.num_free == 7
    assert ledger.active_ratio == ledger.resident_ratio == 0.0


def test_a_snapshot_is_copied_not_shared() -> None:
    ledger = Ledger()
    snapshot = PoolSnapshot(4, 4, 0, 0, [0] * 4, [None] * 4, [])
    ledger.apply(snapshot)
    ledger.apply(BlocksAllocated(0, [1], "decode"))
    assert snapshot.ref_counts == [0] * 4
