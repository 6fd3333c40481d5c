"""Predicted hits equal those of real pools of those sizes; what is not known is not shown."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    BlocksShared,
    EngineEvent,
    PoolCreated,
    PoolSnapshot,
    PrefixCacheReset,
    PrefixLookup,
)
from kvscope_exporter.state import Cache
from kvscope_exporter.state.cache import depths
from kvscope_exporter.state.cache.curve import Curve
from kvscope_exporter.state.cache.run_stack import Segment
from tests.exporter.stream import batch_of, block_hash
from tests.exporter.tree_pool import BLOCK_SIZE, TreePool, tree_path
from tests.exporter.whatif_oracle import since_start

USABLE = 16
MOST_HELD = 8
SECOND = 10**9
PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tree_path)


@dataclass(frozen=True)
class Start:
    """A request; `ends` says which running one ends before it, if one does."""

    path: list[bytes]
    ends: int | None


STARTS = st.lists(st.builds(Start, PATHS, st.none() | st.integers(0, 5)), min_size=15, max_size=60)


def play(
    starts: list[Start], pool: TreePool, before: Callable[[int], None] = lambda _: None
) -> list[int]:
    """A few requests run at a time, so that all pools of MOST_HELD blocks or more have room.

    Returns the hits of each. Which request ends when does not depend on the pool's size.
    """
    running: list[int] = []
    hits = []
    for sequence, start in enumerate(starts):
        if running and start.ends is not None:
            pool.end(running.pop(start.ends % len(running)))
        while sum(len(starts[s].path) for s in running) + len(start.path) > MOST_HELD:
            pool.end(running.pop(0))
        before(sequence)
        hits.append(pool.start(sequence, start.path))
        running.append(sequence)
    return hits


@given(starts=STARTS)
def test_every_size_has_the_hits_of_a_real_pool_of_that_size(starts: list[Start]) -> None:
    cache = Cache()
    play(starts, TreePool(USABLE, cache.apply))
    for point in since_start(cache).points:
        assert not point.is_lower_bound
        assert point.queried_blocks == sum(len(start.path) for start in starts)
        if point.capacity_blocks is None:
            assert point.hit_blocks == sum(play(starts, TreePool(1_000)))
        elif point.capacity_blocks >= MOST_HELD:
            expected = sum(play(starts, TreePool(point.capacity_blocks)))
            assert point.hit_blocks == expected, point
    assert cache.whatif.error_blocks == 0
    assert cache.whatif.hit_blocks["1"] == cache.hit_blocks["first"]


@given(starts=STARTS, unnamed=st.lists(st.integers(0, 3), min_size=1, max_size=10))
def test_the_present_size_is_exact_though_blocks_come_back_empty(
    starts: list[Start], unnamed: list[int]
) -> None:
    """They are handed out again before anything is evicted."""
    cache = Cache()
    pool = TreePool(USABLE, cache.apply)
    running: list[int] = []
    for sequence, start in enumerate(starts):
        if running and start.ends is not None:
            pool.end(running.pop(start.ends % len(running)))
        empty = unnamed[sequence % len(unnamed)]
        while not pool.has_room(start.path, empty):
            pool.end(running.pop(0))
        pool.start(sequence, start.path, empty)
        running.append(sequence)
    assert cache.whatif.error_blocks == 0


@given(starts=STARTS, samples=st.lists(st.integers(0, 3), min_size=1, max_size=10))
def test_the_present_size_is_exact_though_samples_share_blocks_without_a_name(
    starts: list[Start], samples: list[int]
) -> None:
    """Each prompt ends within a block: its samples share that one, too, until they write on."""
    cache = Cache()
    pool = TreePool(USABLE, cache.apply)
    running: list[int] = []
    for number, start in enumerate(starts):
        leader = 10 * number
        if running and start.ends is not None:
            pool.end(running.pop(start.ends % len(running)))
        while not pool.has_room(start.path, 1):
            pool.end(running.pop(0))
        pool.start(leader, start.path, 1)
        family = range(leader, leader + 1 + samples[number % len(samples)])
        for sample in family[1:]:
            pool.fork(leader, sample)
        running += family
        for sample in family[:-1]:  # the last owner writes in place
            while sample in pool.running and not pool.has_room([], 1):
                pool.end(running.pop(0))
            if sample in pool.running and pool.is_shared(pool.running[sample].blocks[-1]):
                pool.copy_last(sample)
    assert cache.whatif.error_blocks == 0
    assert cache.blocks.num_referenced == len(pool.references)


@given(starts=STARTS, joined=st.integers(0, 15))
def test_who_joins_late_is_right_as_soon_as_a_size_is_known(
    starts: list[Start], joined: int
) -> None:
    cache, known, hits = Cache(), [], []

    def tell(event: EngineEvent) -> None:
        if known:
            cache.apply(event)

    def look(sequence: int) -> None:
        if sequence == joined:
            known.append({0})
            hits.append({0: 0})
            cache.apply(pool.snapshot())
        elif known:
            note()

    def note() -> None:
        points = [p for p in since_start(cache).points if p.capacity_blocks is not None]
        hits.append({p.capacity_blocks or 0: p.hit_blocks for p in points})
        known.append({p.capacity_blocks or 0 for p in points if p.known_seconds is not None})

    pool = TreePool(USABLE, tell)
    play(starts, pool, look)
    if not known:
        return
    note()
    for capacity in hits[-1]:
        if capacity >= MOST_HELD:
            expected = play(starts, TreePool(capacity))[joined:]
            for i, hit_blocks in enumerate(expected):
                counted = hits[i + 1][capacity] - hits[i].get(capacity, 0)
                assert counted <= hit_blocks
                assert counted == hit_blocks or capacity not in known[i + 1]
        if capacity <= USABLE:
            assert capacity in known[-1]
    assert cache.whatif.error_blocks == 0


A, B, C, D, E = (tree_path([0] * length)[-1] for length in range(1, 6))
PATH = [A, B, C, D, E]


def released(cache: Cache, blocks: list[int], path: list[bytes]) -> None:
    """A request computed this path, and ended."""
    cache.apply(BlocksAllocated(0, blocks, "prefill"))
    cache.apply(BlocksCached(0, blocks, path, None))
    cache.apply(BlocksReleased(0, blocks[::-1], [], [], "finished"))


def scales(curve: Curve) -> dict[float, tuple[int, bool]]:
    return {point.scale: (point.hit_blocks, point.is_lower_bound) for point in curve.points}


def too_small(cache: Cache, lookup: PrefixLookup, loaded: int = 0) -> list[Segment]:
    looked = cache.whatif.look_up(lookup, 0)
    assert looked is not None
    return cache.whatif.count(lookup, looked, loaded)


def test_the_pool_is_told_by_how_many_blocks_it_is_too_small() -> None:
    cache = Cache()
    cache.apply(PoolCreated(4, BLOCK_SIZE, 0))
    released(cache, [0, 1, 2], [A, B, C])
    cache.apply(BlocksEvicted([2, 1], [C, B], "capacity"))
    released(cache, [1, 2, 3], [D, E, block_hash(999)])  # a path of its own
    # A lies below 3 blocks, B and C below it: a pool of 4 keeps A, one of 6 keeps all.
    assert too_small(cache, PrefixLookup(1, 13, [A, B, C], 1)) == [(1, 2)]
    assert cache.whatif.hit_blocks["1"] == 1
    assert cache.whatif.hit_blocks["1.5"] == 3


def test_what_a_connector_loads_needs_no_larger_pool() -> None:
    cache = Cache()
    cache.apply(PoolCreated(4, BLOCK_SIZE, 0))
    released(cache, [0, 1, 2], [A, B, C])
    cache.apply(BlocksEvicted([2, 1], [C, B], "capacity"))
    released(cache, [1, 2, 3], [D, E, block_hash(999)])
    assert too_small(cache, PrefixLookup(1, 13, [A, B, C], 1), loaded=1) == [(2, 1)]
    found = {point.scale: point for point in since_start(cache).points}
    assert (found[1.5].hit_blocks, found[1.5].loaded_blocks) == (3, 1)
    assert (found[1].hit_blocks, found[1].loaded_blocks) == (1, 0)


def test_with_a_drafter_the_last_block_found_is_left_out_at_each_size() -> None:
    cache = Cache()
    cache.apply(PoolCreated(8, BLOCK_SIZE, 0, drops_last=True))
    released(cache, [0, 1, 2], [A, B, C])
    for sequence in (1, 2):  # which compute C again, beside its old block
        cache.apply(PrefixLookup(sequence, 17, [A, B, C, D], 2))
        cache.apply(BlocksShared(sequence, [0, 1], "prefix_hit"))
        cache.apply(BlocksAllocated(sequence, [2 + sequence], "prefill"))
        cache.apply(BlocksCached(sequence, [2 + sequence], [C], B))
        cache.apply(BlocksReleased(sequence, [2 + sequence, 1, 0], [], [], "finished"))
    assert cache.whatif.error_blocks == 0
    hits = {point.scale: point.hit_blocks for point in since_start(cache).points}
    assert (hits[0.125], hits[0.25], hits[0.375], hits[1], hits[inf]) == (0, 2, 4, 4, 4)


def test_sizes_are_not_shown_while_what_a_drafter_leaves_out_was_predicted_wrongly() -> None:
    cache = Cache()
    cache.apply(PoolCreated(8, BLOCK_SIZE, 0, drops_last=True))
    released(cache, [0, 1, 2], [A, B, C])
    cache.apply(PrefixLookup(1, 17, [A, B, C, D], 3))
    assert cache.whatif.objection == "order"
    assert not cache.whatif.hit_blocks
    cache.apply(PoolCreated(8, BLOCK_SIZE, 0))  # it came back without the drafter
    assert cache.whatif.objection is None


def test_after_a_snapshot_larger_sizes_wait_until_as_many_blocks_have_passed() -> None:
    cache = Cache()
    names = [*PATH[:3], None]
    cache.on_batch(batch_of(PoolSnapshot(4, BLOCK_SIZE, 0, 0, [0] * 4, names, [2, 1, 0])))
    assert {*cache.whatif.hit_blocks} == {"0.25", "0.5", "0.75", "1", "inf"}
    cache.apply(PrefixLookup(1, 13, [A, B, C], 3))
    assert scales(since_start(cache))[1] == (3, False)
    assert scales(since_start(cache))[2] == (3, True)
    cache.apply(BlocksShared(1, [0, 1, 2], "prefix_hit"))
    cache.apply(BlocksReleased(1, [2, 1, 0], [], [], "finished"))
    cache.apply(BlocksEvicted([2, 1], [C, B], "capacity"))
    released(cache, [3, 2, 1], [block_hash(901), block_hash(902), block_hash(903)])
    cache.on_batch(batch_of(PrefixLookup(2, 5, [block_hash(901)], 1), time_ns=9 * SECOND))
    assert "1.5" in cache.whatif.hit_blocks, "6 blocks are known: 3 of them are still here"
    assert "2" not in cache.whatif.hit_blocks
    known = {point.scale: point.known_seconds for point in since_start(cache).points}
    assert (known[1], known[1.5], known[2], known[inf]) == (9, 0, None, None)
    assert scales(since_start(cache))[1.5] == (4, True), "it was not known from the start"


def test_a_pool_that_is_new_or_was_reset_is_known_at_every_size() -> None:
    cache = Cache()
    cache.apply(PoolSnapshot(4, BLOCK_SIZE, 0, 0, [0] * 4, [A, None, None, None], [0]))
    cache.apply(BlocksEvicted([0], [A], "reset"))
    cache.apply(PrefixCacheReset(1))
    assert "4" in cache.whatif.hit_blocks
    cache.apply(PrefixLookup(1, 5, [A], 0))
    assert cache.whatif.hit_blocks["4"] == 0
    assert cache.whatif.hit_blocks["inf"] == 1


def test_a_window_forgets_what_was_before_it() -> None:
    cache = Cache()
    cache.on_batch(batch_of(PoolCreated(16, BLOCK_SIZE, 0)))
    released(cache, [0, 1], [A, B])
    for second in (10, 100, 1_000, 4_000):
        look_up = PrefixLookup(second, 9, [A, B], 2)
        shared = BlocksShared(second, [0, 1], "prefix_hit")
        given_back = BlocksReleased(second, [1, 0], [], [], "finished")
        cache.on_batch(batch_of(look_up, shared, given_back, time_ns=second * SECOND))
    cache.on_batch(batch_of(time_ns=4_200 * SECOND))
    expected: dict[float | None, tuple[int, float]]
    expected = {None: (4, 4_200), 300: (1, 300), 150: (0, 150), 3_600: (2, 3_600)}
    for window, (lookups, seconds) in expected.items():
        curve = cache.whatif.curve(window)
        assert curve is not None
        assert {point.queried_blocks for point in curve.points} == {2 * lookups}
        assert scales(curve)[1] == (2 * lookups, False)
        assert curve.seconds == seconds
    assert len(cache.whatif._slots._moments) == 2, "nobody can ask for what is older"


def test_counters_go_on_when_the_pool_is_built_anew_in_another_size() -> None:
    cache = Cache()
    cache.apply(PoolCreated(4, BLOCK_SIZE, 0))
    released(cache, [0, 1], [A, B])
    cache.apply(PrefixLookup(1, 9, [A, B], 2))
    cache.on_batch(batch_of(PoolCreated(64, BLOCK_SIZE, 0), time_ns=SECOND))
    assert cache.whatif.hit_blocks["1"] == 2
    cache.apply(PrefixLookup(2, 9, [A, B], 0))
    assert cache.whatif.hit_blocks["1"] == 2
    assert cache.whatif.queried_blocks == 4
    assert scales(since_start(cache))[1] == (0, False)
    assert cache.whatif.curve(None).points[-2].capacity_blocks == 256  # type: ignore[union-attr]


def test_generated_content_that_comes_again_is_idle_no_more() -> None:
    cache = Cache()
    cache.apply(PoolCreated(8, BLOCK_SIZE, 0))
    released(cache, [0, 1], [A, B])
    cache.apply(BlocksEvicted([1], [B], "capacity"))
    cache.apply(PrefixLookup(1, 5, [A], 1))  # B is generated, and was not asked for
    cache.apply(BlocksShared(1, [0], "prefix_hit"))
    cache.apply(BlocksAllocated(1, [1], "decode"))
    cache.apply(BlocksCached(1, [1], [B], A))
    cache.apply(PrefixLookup(2, 9, [A, B], 2))
    assert set(cache.whatif.hit_blocks.values()) == {3}, "both are referenced"


def test_sizes_beyond_the_names_kept_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depths, "GHOST_NAMES", 8)
    cache = Cache()
    cache.apply(PoolCreated(16, BLOCK_SIZE, 0))
    assert {*cache.whatif.hit_blocks} == {"0.25", "0.5", "0.75", "1", "1.5", "inf"}
    assert [point.capacity_blocks for point in since_start(cache).points][-2:] == [24, None]


def test_an_infinite_cache_is_unknown_once_names_are_forgotten() -> None:
    cache = Cache(window=1, forgotten=4)
    cache.apply(PoolCreated(16, BLOCK_SIZE, 0))
    for number in range(20):
        assert ("inf" in cache.whatif.hit_blocks) == (number < 10)
        released(cache, [0], [block_hash(number)])
        cache.apply(BlocksEvicted([0], [block_hash(number)], "capacity"))


def test_sequences_that_never_end_do_not_fill_the_memory() -> None:
    cache = Cache()
    cache.apply(PoolCreated(4, BLOCK_SIZE, 0))
    for number in range(100):
        released(cache, [0], [block_hash(number)])
        cache.apply(BlocksEvicted([0], [block_hash(number)], "capacity"))
        cache.apply(PrefixLookup(number, 5, [block_hash(number)], 0))
    assert len(cache.whatif._recomputed._distances) <= 16
    assert len(cache.whatif._recomputed) <= 16
