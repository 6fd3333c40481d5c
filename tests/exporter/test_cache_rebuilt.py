"""When names that a rebuilt pool no longer has left: now, or in a gap."""

from kvscope_events.events import BlocksCached, PoolCreated
from kvscope_exporter.state import Cache
from kvscope_exporter.state.cache.blocks import NEVER
from tests.exporter.stream import batch_of, block_hash

A = block_hash(1)


def cache_rebuilt_at_70(*, after_gap: bool) -> Cache:
    cache = Cache()
    cache.on_batch(batch_of(PoolCreated(8, 4, 0), BlocksCached(0, [0], [A], None)))
    if after_gap:
        cache.on_gap()
    cache.on_batch(batch_of(PoolCreated(8, 4, 0), time_ns=70))
    return cache


def test_a_pool_built_anew_without_a_gap_lost_its_names_then() -> None:
    assert cache_rebuilt_at_70(after_gap=False).evicted.time_ns(A) == 70


def test_a_pool_built_anew_after_a_gap_lost_its_names_at_an_unknown_time() -> None:
    assert cache_rebuilt_at_70(after_gap=True).evicted.time_ns(A) == NEVER
