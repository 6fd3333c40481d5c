"""Regret and shortfall, against searches through the whole record; and what is not known."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kvscope_engine.block_pool import BlockPool
from kvscope_events.bus import EventBus
from kvscope_events.events import BlocksCached, BlocksEvicted, PoolCreated, PrefixLookup
from kvscope_exporter.state import Cache
from kvscope_exporter.state.cache.regret import Regret
from kvscope_exporter.state.cache.shortfall import SLICE_NS, SLICES, Shortfall
from tests.exporter import cache_oracle as oracle
from tests.exporter.cache_record import BLOCK_SIZE, LOST, Life, folded, lives, names_of
from tests.exporter.stream import batch_of, block_hash

SECOND = 10**9
A, B, C, D = (block_hash(number) for number in range(4))


@given(life=lives(), window=st.sampled_from([2, 5, 100]))
def test_regret_is_that_found_by_looking_back(life: Life, window: int) -> None:
    if LOST in life.record:  # in which order names fall out of a gap is not known
        window = 100
    regret = folded(life.record, window=window).regret
    ages = oracle.regretted(life.record, window)
    assert regret.tokens == BLOCK_SIZE * (len(ages.known) + ages.unknown)


def evicting() -> Cache:
    """Blocks of 4 tokens; A stays, B and C are evicted at 2 s."""
    cache = Cache()
    cache.on_batch(batch_of(PoolCreated(8, 4, 0), BlocksCached(0, [1, 2, 3], [A, B, C], None)))
    cache.on_batch(batch_of(BlocksEvicted([3, 2], [C, B], "capacity"), time_ns=2 * SECOND))
    return cache


_CALLS = st.lists(
    st.tuples(
        st.integers(0, 700),  # seconds
        st.integers(0, 30),  # regretted
        st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 200)), max_size=2),  # too far
    ),
    max_size=20,
)


@given(calls=_CALLS, now=st.integers(0, 1_100))
def test_the_shortfall_is_that_of_a_sorted_list_but_for_its_buckets(
    calls: list[tuple[int, int, list[tuple[int, int]]]], now: int
) -> None:
    shortfall = Shortfall()
    calls.sort(key=lambda call: call[0])
    now += calls[-1][0] if calls else 0
    regretted, distances = 0, list[int]()
    for at, blocks, segments in calls:
        recent = at // 10 > now // 10 - 30
        if blocks:
            shortfall.regret(blocks, at * SECOND)
            regretted += blocks * recent
        for first, count in segments:
            shortfall.too_far(first, count, at * SECOND)
            distances += [first + i for i in range(count)] * recent
    found = shortfall.blocks(now * SECOND)
    whole = max(regretted, len(distances))
    needed = -(-9 * whole // 10)
    if not whole or len(distances) < needed:
        assert found is None
        return
    exact = sorted(distances)[needed - 1]
    assert found is not None
    assert exact <= found <= exact * (1 + 1 / 32)
    assert exact >= 64 or found == exact


def test_what_no_pool_is_known_to_keep_makes_the_shortfall_unknown() -> None:
    regret = Regret()
    times: list[int | None] = [0] * 10
    regret.look_up(times, is_first=True, block_size=4, time_ns=0)
    assert regret.shortfall_blocks(0) is None, "no distance is known"
    regret.too_far(3, 8)
    assert regret.shortfall_blocks(0) is None, "two of ten are beyond what is known"
    regret.too_far(20, 1)
    assert regret.shortfall_blocks(0) == 20, "the tenth may be anywhere"
    assert regret.shortfall_blocks(290 * SECOND) == 20
    assert regret.shortfall_blocks(300 * SECOND) is None, "nothing was regretted since"


def test_a_new_pool_has_a_shortfall_of_its_own() -> None:
    regret = Regret()
    regret.look_up([0], is_first=True, block_size=4, time_ns=0)
    regret.too_far(3, 1)
    regret.begin()
    assert regret.shortfall_blocks(0) is None
    assert regret.tokens == 4


def test_the_shortfalls_memory_is_bounded() -> None:
    shortfall = Shortfall()
    for number in range(400):
        shortfall.too_far(1, 2**62, number * SLICE_NS)
        shortfall.too_far(2**62, 3, number * SLICE_NS - SLICE_NS)  # a clock that goes back
    slices = shortfall._slices
    assert len(slices) <= SLICES
    assert max(len(one.too_small) for one in slices) < 64 + 32 * 64


def replayed(paths: Sequence[Sequence[int]], num_blocks: int) -> Cache:
    """One request after the other on a pool of a real engine, none of them with a partial block."""
    bus, cache = EventBus(), Cache()
    events = bus.subscribe(queue_batches=1)
    pool = BlockPool(num_blocks, BLOCK_SIZE, bus)
    for number, path in enumerate(paths):
        names = names_of(path)
        prefix = pool.find(names)
        bus.emit(PrefixLookup(number, len(path) * BLOCK_SIZE + 1, names, len(prefix)))
        if prefix:
            pool.share(number, prefix)
        table = prefix + pool.allocate(number, len(path) - len(prefix), "prefill")
        if len(prefix) < len(path):
            pool.cache(number, table[len(prefix) :], names[len(prefix) :], None)
        pool.release(number, table, "finished")
        bus.flush()
        taken = events.take()
        assert taken is not None
        cache.on_batch(batch_of(*taken[0].events))
    return cache


@given(
    paths=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=5, max_size=40),
    num_blocks=st.integers(6, 12),
)
def test_so_many_blocks_more_keep_nine_tenths_and_one_less_does_not(
    paths: list[list[int]], num_blocks: int
) -> None:
    cache = replayed(paths, num_blocks)
    shortfall = cache.regret.shortfall_blocks(0)
    regretted = cache.regret.tokens // BLOCK_SIZE
    if not regretted:
        assert shortfall is None
        return
    if shortfall is None:  # four times the pool would not have kept them
        assert 10 * (replayed(paths, 4 * num_blocks).regret.tokens // BLOCK_SIZE) > regretted
        return
    assert shortfall < 64, "beyond that it is rounded up"
    hits = cache.hit_blocks["first"]

    def kept(more: int) -> int:
        return replayed(paths, num_blocks + more).hit_blocks["first"] - hits

    assert 10 * kept(shortfall) >= 9 * regretted
    assert 10 * kept(shortfall - 1) < 9 * regretted
