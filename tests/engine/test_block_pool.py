"""The pool's allocations, contents and evictions, call by call."""

import pytest

from kvscope_engine.block_pool import BlockPool, OutOfBlocksError
from kvscope_events.bus import EventBus
from kvscope_events.events import (
    BlocksAllocated,
    BlocksEvicted,
    BlocksReleased,
    EngineEvent,
    PoolCreated,
    PrefixCacheReset,
)


class Harness:
    """A pool and the events it emitted."""

    def __init__(self, num_blocks: int = 8, reserved: int = 0) -> None:
        self.bus = EventBus()
        self.subscription = self.bus.subscribe()
        self.pool = BlockPool(num_blocks, 4, self.bus, bytes_per_block=64, reserved=reserved)

    def events(self) -> list[EngineEvent]:
        self.bus.flush()
        taken = self.subscription.take()
        return [] if taken is None else taken[0].events

    def fill(self, request: int, names: str) -> list[int]:
        """Allocate, cache and keep one block per letter; equal letters are equal content."""
        table = list(self.pool.allocate(request, len(names), "prefill"))
        self.pool.cache(request, list(table), [name.encode() for name in names], None)
        return table


def test_a_new_pool_says_so_and_is_free() -> None:
    harness = Harness(num_blocks=8, reserved=2)
    assert harness.events() == [PoolCreated(8, 4, 64, 2)]
    pool = harness.pool
    assert (pool.num_free, pool.num_cached, pool.num_active, pool.num_usable) == (6, 0, 0, 6)


def test_reserved_blocks_are_never_handed_out() -> None:
    harness = Harness(num_blocks=8, reserved=2)
    assert set(harness.pool.allocate(0, 6, "prefill")) == set(range(2, 8))


def test_free_blocks_are_taken_before_any_is_evicted() -> None:
    harness = Harness()
    harness.pool.release(0, harness.fill(0, "abcd"), "finished")
    harness.events()
    harness.pool.allocate(1, 4, "prefill")
    assert not [e for e in harness.events() if isinstance(e, BlocksEvicted)]
    assert harness.pool.num_cached == 4


def test_a_prefix_outlives_its_suffix() -> None:
    harness = Harness(num_blocks=4)
    table = harness.fill(0, "abcd")
    harness.pool.release(0, table, "finished")
    harness.pool.allocate(1, 2, "prefill")
    evicted = [e for e in harness.events() if isinstance(e, BlocksEvicted)]
    assert evicted == [BlocksEvicted([table[3], table[2]], [b"d", b"c"], "capacity")]
    assert harness.pool.find([b"a", b"b", b"c"]) == table[:2]


def test_a_hit_makes_a_block_the_newest() -> None:
    harness = Harness(num_blocks=4)
    first, second = harness.fill(0, "ab"), harness.fill(1, "xy")
    harness.pool.release(0, first, "finished")
    harness.pool.release(1, second, "finished")
    harness.pool.share(2, [first[0]])
    harness.pool.release(2, [first[0]], "finished")
    assert harness.pool.snapshot().lru == [first[1], second[1], second[0], first[0]]


def test_release_tells_what_became_of_each_block() -> None:
    harness = Harness()
    table = harness.fill(0, "ab") + list(harness.pool.allocate(0, 1, "decode"))
    harness.pool.share(1, [table[0]])
    harness.events()
    harness.pool.release(0, table, "aborted")
    expected = BlocksReleased(0, [table[1]], [table[2]], [table[0]], "aborted")
    assert harness.events() == [expected]


def test_a_shared_block_stays_active_until_its_last_reference_goes() -> None:
    harness = Harness()
    (block,) = harness.fill(0, "a")
    harness.pool.share(1, [block])
    harness.pool.release(0, [block], "finished")
    assert harness.pool.num_active == 1
    harness.pool.release(1, [block], "finished")
    assert harness.pool.num_cached == 1


def test_out_of_blocks_changes_nothing() -> None:
    harness = Harness(num_blocks=4)
    harness.pool.release(0, harness.fill(0, "ab"), "finished")
    harness.pool.allocate(1, 1, "prefill")
    before = harness.pool.snapshot()
    harness.events()
    with pytest.raises(OutOfBlocksError, match="4 blocks wanted, 3 free or evictable") as caught:
        harness.pool.allocate(2, 4, "prefill")
    assert (caught.value.wanted, caught.value.available) == (4, 3)
    assert harness.pool.snapshot() == before
    assert harness.events() == []


def test_allocating_nothing_hands_out_nothing() -> None:
    harness = Harness()
    assert harness.pool.allocate(0, 0, "prefill") == []
    harness.pool.check()
    assert harness.pool.num_free == 8


def test_equal_content_in_two_blocks_survives_the_eviction_of_one() -> None:
    harness = Harness(num_blocks=3)
    (one,), (other,) = harness.fill(0, "a"), harness.fill(1, "a")
    assert harness.pool.find([b"a"]) == [one]
    harness.pool.release(0, [one], "finished")
    harness.pool.allocate(2, 2, "prefill")  # takes the free block, then evicts `one`
    assert harness.pool.find([b"a"]) == [other]
    harness.pool.check()
    harness.pool.release(1, [other], "finished")
    harness.pool.allocate(3, 1, "prefill")
    assert harness.pool.find([b"a"]) == []
    harness.pool.check()


def test_reset_forgets_cached_blocks_and_keeps_active_ones() -> None:
    harness = Harness()
    kept, gone = harness.fill(0, "a"), harness.fill(1, "b")
    harness.pool.release(1, gone, "finished")
    harness.events()
    assert harness.pool.reset() == 1
    assert harness.events() == [BlocksEvicted(gone, [b"b"], "reset"), PrefixCacheReset(1)]
    assert harness.pool.reset() == 0
    assert harness.events() == [PrefixCacheReset(0)], "told although nothing was there to forget"
    assert harness.pool.find([b"a"]) == kept
    assert harness.pool.find([b"b"]) == []
    harness.pool.check()


def test_one_event_per_call_not_per_block() -> None:
    harness = Harness()
    harness.events()
    harness.pool.allocate(0, 5, "prefill")
    (event,) = harness.events()
    assert isinstance(event, BlocksAllocated)
    assert len(event.blocks) == 5


@pytest.mark.parametrize("reserved", [-1, 8, 9])
def test_a_pool_without_a_usable_block_is_refused(reserved: int) -> None:
    with pytest.raises(ValueError, match="reserved must be in"):
        BlockPool(8, 4, EventBus(), reserved=reserved)


def test_a_block_without_content_to_find_is_shared_and_freed_with_its_last_reference() -> None:
    harness = Harness()
    (block,) = harness.pool.allocate(0, 1, "prefill")
    assert not harness.pool.is_shared(block)
    harness.pool.share(1, [block], "fork")
    assert harness.pool.is_shared(block)
    harness.events()
    harness.pool.release(0, [block], "finished")
    harness.pool.release(1, [block], "finished")
    assert harness.events() == [
        BlocksReleased(0, [], [], [block], "finished"),
        BlocksReleased(1, [], [block], [], "finished"),
    ]
    harness.pool.check()
    assert harness.pool.num_free == 8
