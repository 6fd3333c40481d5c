"""Residency of blocks, against searches through the whole record; and unknown times."""

from hypothesis import given

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    EngineEvent,
    PoolCreated,
)
from kvscope_exporter.state import Cache, Histogram
from kvscope_exporter.state.buckets import RESIDENCY_SECONDS
from tests.exporter import cache_oracle as oracle
from tests.exporter.cache_record import Life, folded, lives
from tests.exporter.stream import batch_of, block_hash

SECOND = 10**9
A, B, C = (block_hash(number) for number in range(3))


def assert_same(histogram: Histogram, ages: oracle.Ages) -> None:
    assert histogram.counts_at(RESIDENCY_SECONDS) == ages.counts(RESIDENCY_SECONDS)
    assert histogram.total == sum(ages.known)


@given(life=lives())
def test_all_times_are_those_found_by_looking_back(life: Life) -> None:
    residency = folded(life.record).residency
    lifetimes = oracle.lifetimes(life.record)
    idle, reuse = oracle.idle_times(life.record), oracle.reuse_gaps(life.record)
    assert_same(residency.lifetime_seconds, lifetimes)
    assert_same(residency.idle_seconds, idle)
    assert_same(residency.reuse_seconds, reuse)
    assert residency.unknown == {
        "lifetime": lifetimes.unknown,
        "idle": idle.unknown,
        "reuse": reuse.unknown,
    }


@given(life=lives())
def test_retention_is_the_idle_time_of_the_pools_own_oldest(life: Life) -> None:
    cache = folded(life.record)
    heard = oracle.flat(life.record)
    if not oracle.is_known(heard):
        return
    cache.residency.check()
    lru = life.pool.snapshot().lru
    _, since_ns = oracle.idle_ns(heard, lru[0]) if lru else (False, None)
    assert cache.residency.oldest_idle_ns() == since_ns
    assert sum(cache.residency.idle.values()) == len(lru)


def seconds(at: float, *events: EngineEvent) -> tuple[float, tuple[EngineEvent, ...]]:
    return at, events


def run(*steps: tuple[float, tuple[EngineEvent, ...]]) -> Cache:
    cache = Cache()
    for at, events in steps:
        cache.on_batch(batch_of(*events, time_ns=round(at * SECOND)))
    return cache


WRITTEN = (
    PoolCreated(8, 4, 0),
    BlocksAllocated(0, [1, 2, 3], "prefill"),
    BlocksCached(0, [1, 2], [A, B], None),
)


def test_a_block_pinned_ends_its_idle_time_but_is_not_reused() -> None:
    released = BlocksReleased(0, [2, 1], [3], [], "finished")
    cache = run(seconds(0, *WRITTEN, released), seconds(5, BlocksShared(None, [1, 2], "pin")))
    assert not any(cache.residency.reuse_seconds.counts)
    assert cache.residency.oldest_idle_ns() is None


def test_contradictions_and_blocks_beyond_the_pool_do_no_harm() -> None:
    strange = [-1, 99, 1, 1, 2]
    cache = run(
        seconds(5, *WRITTEN, BlocksReleased(0, [2, 1, 1, 99, -1], [3], [], "finished")),
        seconds(4, BlocksShared(1, strange, "prefix_hit")),  # and a clock that goes back
        seconds(4, BlocksReleased(1, strange, [], [], "finished")),
        seconds(3, BlocksEvicted(strange, [C, C, A, A, B], "capacity")),
        seconds(3, BlocksEvicted(strange, [C, C, A, A, B], "capacity")),
    )
    assert cache.residency.oldest_idle_ns() is None
    assert cache.residency.idle_seconds.total == 0


def test_there_are_no_more_times_than_idle_blocks() -> None:
    life = Life(num_blocks=32)
    for number in range(2_000):
        life.admit([number % 251, number % 7])
        life.finish(0)
        life.wait(1)
    cache = folded(life.record)
    cache.residency.check()
    assert sum(cache.residency.idle.values()) == life.pool.num_cached
