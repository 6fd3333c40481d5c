"""The cache fold: hits and misses add up, causes are those of an exact model, or absent."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksEvicted,
    BlocksReleased,
    ContentDropped,
    PoolCreated,
    PoolSnapshot,
    PrefixCacheReset,
    PrefixLookup,
)
from kvscope_events.vocabulary import ContentCause
from kvscope_exporter.catalogue import MISS_CAUSES
from kvscope_exporter.state import Cache
from kvscope_exporter.state.cache import ForgottenNames
from tests.exporter.stream import batch_of, block_hash

A, B, C, D = (block_hash(number) for number in range(4))
NAMES = st.integers(0, 19).map(block_hash)


def cache_with(*names: bytes, window: int = 100) -> Cache:
    """Blocks of 4 tokens; `names` are resident."""
    cache = Cache(window)
    cache.apply(PoolCreated(8, 4, 0))
    cache.apply(BlocksCached(0, list(range(len(names))), list(names), None))
    return cache


def test_hits_and_misses_sum_to_the_queried_blocks() -> None:
    cache = cache_with(A, B, C)
    cache.apply(BlocksEvicted([2], [C], "capacity"))
    cache.apply(PrefixLookup(1, 18, [A, B, C, D], 2))
    assert cache.queried_tokens == {"first": 18, "resumed": 0}
    assert cache.hit_tokens == {"first": 8, "resumed": 0}
    assert cache.queried_blocks == {"first": 5, "resumed": 0}
    assert cache.hit_blocks == {"first": 2, "resumed": 0}
    assert cache.missed_blocks == {
        "cold": 1,
        "evicted": 1,
        "forgotten": 0,
        "unreachable": 0,
        "vetoed": 0,
        "partial": 1,
    }


def test_resets_count_although_nothing_was_cached_or_known() -> None:
    cache = cache_with(A)
    cache.on_batch(batch_of(BlocksEvicted([0], [A], "reset"), PrefixCacheReset(1)))
    cache.on_gap()
    cache.on_batch(batch_of(PrefixCacheReset(0)))
    assert cache.resets == 2


def test_a_resumed_lookup_is_kept_apart() -> None:
    cache = cache_with(A)
    cache.apply(PrefixLookup(1, 6, [A], 1, resumed=True))
    assert cache.queried_tokens == {"first": 0, "resumed": 6}
    assert cache.hit_blocks == {"first": 0, "resumed": 1}


def test_resident_blocks_right_behind_the_hits_are_vetoed() -> None:
    # Sliding windows and states shorten a hit of full attention, and so does a drafter.
    cache = cache_with(A, B, C)
    cache.apply(PrefixLookup(1, 21, [A, B, D, C], 1))
    assert cache.missed_blocks == {
        "cold": 1,
        "evicted": 0,
        "forgotten": 0,
        "unreachable": 1,
        "vetoed": 1,
        "partial": 1,
    }


def test_full_blocks_only_have_no_partial_one() -> None:
    cache = cache_with()
    cache.apply(PrefixLookup(1, 8, [A, B], 0))
    assert cache.missed_blocks["partial"] == 0
    cache.apply(PrefixLookup(2, 8, [A], 0))  # the last full block must be computed: it cannot hit
    assert cache.missed_blocks["partial"] == 1


def test_the_time_of_an_eviction_is_kept_while_the_name_is_in_the_window() -> None:
    cache = cache_with(A, B)
    cache.on_batch(batch_of(BlocksEvicted([0], [A], "capacity"), time_ns=70))
    assert cache.evicted.time_ns(A) == 70
    assert cache.evicted.time_ns(B) is None
    cache.apply(BlocksCached(0, [0], [A], None))
    assert cache.evicted.time_ns(A) is None


@pytest.mark.parametrize("cause", ["replaced", "invalid"])
def test_content_lost_under_a_reference_is_gone_like_what_is_evicted(cause: ContentCause) -> None:
    cache = cache_with(A, B)
    cache.apply(ContentDropped([1], [B], cause))
    cache.apply(PrefixLookup(1, 8, [A, B], 1))
    assert cache.missed_blocks["evicted"] == 1


def test_content_that_moved_is_still_here() -> None:
    cache = cache_with(A, B)
    cache.apply(ContentDropped([1], [B], "moved"))
    cache.apply(BlocksCached(None, [7], [B], A))
    cache.apply(PrefixLookup(1, 9, [C, B], 0))
    assert cache.missed_blocks["unreachable"] == 1


def test_a_producer_of_names_alone_is_enough() -> None:
    cache = cache_with()
    cache.apply(BlocksCached(None, [], [A, B], None))
    cache.apply(BlocksEvicted([], [B], "capacity"))
    cache.apply(PrefixLookup(1, 8, [A, B], 1))
    assert cache.missed_blocks["evicted"] == 1


def test_causes_that_need_the_state_are_absent_until_it_is_known_again() -> None:
    cache = cache_with(A)
    cache.on_gap()
    cache.apply(PrefixLookup(1, 9, [A, B], 1))
    assert cache.missed_blocks == {"partial": 1}
    assert cache.hit_blocks["first"] == 1
    cache.apply(PoolSnapshot(8, 4, 0, 0, [0] * 8, [B, *[None] * 7], [0]))
    cache.apply(PrefixLookup(1, 9, [A, B], 0))
    assert cache.missed_blocks == {
        "cold": 0,
        "evicted": 1,
        "forgotten": 0,
        "unreachable": 1,
        "vetoed": 0,
        "partial": 2,
    }


def test_nothing_is_counted_before_the_block_size_is_known() -> None:
    cache = Cache()
    cache.apply(PrefixLookup(1, 9, [A, B], 1))
    cache.apply(BlocksCached(0, [0], [A], None))
    cache.apply(BlocksEvicted([0], [A], "capacity"))
    assert cache.queried_tokens["first"] == 0


WINDOW = 4
POOL = 256
"""More than there can be copies."""


class CacheEqualsAnExactModel(RuleBasedStateMachine):
    """Names come, are copied and go; each lookup misses for the causes that plain lists give.

    The filter may take a cold name for a forgotten one, not the other way; here it is nearly empty.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache(WINDOW, forgotten=1024)
        self.cache.apply(PoolCreated(POOL, 4, 0))
        self.resident: list[bytes] = []
        self.evicted: list[bytes] = []
        self.fallen: set[bytes] = set()
        self.missed = dict.fromkeys(MISS_CAUSES, 0)

    def leave(self, names: list[bytes]) -> None:
        for name in names:
            self.resident.remove(name)
            if name not in self.resident:
                self.evicted.append(name)
        while len(self.evicted) > WINDOW:
            self.fallen.add(self.evicted.pop(0))

    @rule(names=st.lists(NAMES, max_size=6))
    def cached(self, names: list[bytes]) -> None:
        self.cache.apply(BlocksCached(0, [], names, None))
        self.resident += names
        self.evicted = [name for name in self.evicted if name not in names]

    @precondition(lambda self: self.resident)
    @rule(data=st.data())
    def lost(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(self.resident), max_size=8))
        names = list((Counter(names) & Counter(self.resident)).elements())
        self.cache.apply(BlocksEvicted([], names, "capacity"))
        self.leave(names)

    @rule(names=st.lists(NAMES, max_size=8))
    def looked_up(self, names: list[bytes]) -> None:
        self.cache.apply(PrefixLookup(0, 4 * len(names), names, 0))
        is_unbroken = True
        for name in names:
            is_unbroken = is_unbroken and name in self.resident
            if name in self.resident:
                self.missed["vetoed" if is_unbroken else "unreachable"] += 1
            elif name in self.evicted:
                self.missed["evicted"] += 1
            else:
                self.missed["forgotten" if name in self.fallen else "cold"] += 1

    @rule(keep=st.integers(0, 8))
    def lost_batches(self, keep: int) -> None:
        self.cache.on_gap()
        self.cache.apply(PrefixLookup(0, 4, [block_hash(0)], 0))
        assert self.cache.missed_blocks == {"partial": 0}
        kept, gone = self.resident[:keep], self.resident[keep:]
        if len(set(gone) - set(kept)) > 1:  # they are lost in no particular order
            kept, gone = self.resident, []
        self.cache.apply(PoolSnapshot(POOL, 4, 0, 0, [], list(kept), []))
        self.leave(gone)

    @invariant()
    def the_causes_are_the_models(self) -> None:
        self.cache.evicted.check()
        assert self.cache.resident.names == set(self.resident)
        assert all(self.cache.resident.copies(n) == self.resident.count(n) for n in self.resident)
        missed = self.cache.missed_blocks
        mistaken = self.missed["cold"] - missed["cold"]
        assert mistaken == missed["forgotten"] - self.missed["forgotten"] >= 0
        assert {**missed, "cold": 0, "forgotten": 0} == {**self.missed, "cold": 0, "forgotten": 0}
        assert mistaken == 0, "20 names in a filter for 1024: a chance of one in a million"


TestCacheEqualsAnExactModel = CacheEqualsAnExactModel.TestCase
TestCacheEqualsAnExactModel.settings = settings(stateful_step_count=30)


def test_the_forgotten_are_all_known_and_strangers_hardly_ever_taken_for_them() -> None:
    capacity = 1 << 14
    forgotten = ForgottenNames(capacity)
    names = [block_hash(number) for number in range(4 * capacity)]
    forgotten.add(names[: 3 * capacity])  # one filter is gone, two are full
    assert all(name in forgotten for name in names[capacity : 3 * capacity])
    strangers = names[3 * capacity :]
    most = capacity / 80  # 0.8 %, and what chance adds in so small a filter
    assert sum(name in forgotten for name in strangers) < most
    aged = names[:capacity]
    assert sum(name in forgotten for name in aged) < most, "the oldest are gone"


def test_a_window_that_many_names_pass_stays_small() -> None:
    cache = cache_with(window=8)
    for number in range(1_000):
        for name in (block_hash(number), A):  # A comes and goes for ever
            cache.apply(BlocksCached(0, [], [name], None))
            cache.apply(BlocksEvicted([], [name], "capacity"))
        cache.evicted.check()
    assert len(cache.evicted) == 8
    assert not cache.resident.names


def test_a_snapshot_for_another_reader_changes_nothing() -> None:
    cache = cache_with(A, B)
    cache.apply(BlocksAllocated(0, [0, 1], "prefill"))
    cache.on_batch(batch_of(BlocksReleased(0, [1], [], [], "finished"), time_ns=70))
    written_ns = cache.blocks.written_ns.tolist()
    cache.apply(PoolSnapshot(8, 4, 0, 0, [1, *[0] * 7], [A, B, *[None] * 6], [1]))
    assert cache.blocks.written_ns.tolist() == written_ns
    assert cache.blocks.idle_ns[1] == 70
    cache.apply(PoolSnapshot(8, 4, 0, 0, [0] * 8, [A, None, *[None] * 6], [0]))
    assert cache.resident.names == {A}, "one that contradicts us replaces our state"
