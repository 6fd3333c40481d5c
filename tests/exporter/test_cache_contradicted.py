"""A stream that contradicts itself makes the names unknown; it neither raises nor fills memory."""

import pytest

from kvscope_events.events import (
    BlocksAllocated,
    BlocksCached,
    BlocksReleased,
    PoolCreated,
    PoolSnapshot,
    PrefixLookup,
)
from kvscope_exporter.state import Cache
from tests.exporter.stream import block_hash

A, B = block_hash(1), block_hash(2)


def cache_of_four() -> Cache:
    cache = Cache()
    cache.apply(PoolCreated(4, 4, 0))
    cache.apply(BlocksCached(0, [0], [A], None))
    return cache


@pytest.mark.parametrize("blocks", [[4], [-1], [1, 2]])
def test_names_in_blocks_that_cannot_be_make_the_state_unknown(blocks: list[int]) -> None:
    cache = cache_of_four()
    cache.apply(BlocksCached(0, blocks, [B], None))
    assert not cache.known
    assert not cache.whatif.known
    assert cache.resident.names == {A}
    cache.apply(PrefixLookup(1, 5, [A], 1))
    cache.apply(PoolSnapshot(4, 4, 0, 0, [0] * 4, [B, None, None, None], [0]))
    assert cache.known
    assert cache.resident.names == {B}


@pytest.mark.parametrize("blocks", [[1], []])
def test_names_that_come_and_never_go_are_no_more_than_blocks(blocks: list[int]) -> None:
    cache = cache_of_four()
    for number in range(2, 1_000):
        cache.apply(BlocksCached(0, blocks, [block_hash(number)], None))
    assert not cache.known
    assert len(cache.resident.names) <= 5


def test_a_snapshot_with_more_names_than_blocks_fills_the_pool_only() -> None:
    cache = Cache()
    names: list[bytes | None] = [block_hash(number) for number in range(100)]
    cache.apply(PoolSnapshot(4, 4, 0, 0, [0] * 4, names, []))
    assert len(cache.resident.names) == 4


@pytest.mark.parametrize("given_back", [False, True])
def test_blocks_beyond_the_pool_are_not_in_the_way_of_others(given_back: bool) -> None:
    cache = cache_of_four()
    cache.apply(BlocksReleased(0, [0], [], [], "finished"))
    beyond = list(range(100, 1_100))
    cache.apply(BlocksAllocated(1, beyond, "prefill"))
    if given_back:
        cache.apply(BlocksReleased(1, [], beyond, [], "finished"))
    cache.apply(PrefixLookup(2, 5, [A], 1))
    curve = cache.whatif.curve(None)
    assert curve is not None
    assert {p.hit_blocks for p in curve.points if p.scale >= 1.25} == {1}, "4 in the way at most"
