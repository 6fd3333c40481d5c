"""A window holds only time in which lookups were counted."""

from kvscope_events.events import PoolCreated, PoolSnapshot, PrefixLookup
from kvscope_exporter.state import Cache
from tests.exporter.stream import batch_of, block_hash

A = block_hash(1)
SECOND = 10**9


def test_windows_begin_anew_after_a_gap_and_counters_go_on() -> None:
    cache = Cache()
    cache.on_batch(batch_of(PoolCreated(8, 4, 0)))
    cache.on_batch(batch_of(PrefixLookup(1, 5, [A], 0), time_ns=SECOND))
    cache.on_gap()
    snapshot = PoolSnapshot(8, 4, 0, 0, [0] * 8, [A, *[None] * 7], [0])
    cache.on_batch(batch_of(snapshot, time_ns=1_000 * SECOND))
    look_up = PrefixLookup(2, 5, [A], 1)
    cache.on_batch(batch_of(look_up, time_ns=1_010 * SECOND))
    for window in (None, 300, 3_600):
        curve = cache.whatif.curve(window)
        assert curve is not None
        assert (curve.seconds, curve.queried_blocks) == (10, 1)
        assert {p.hit_blocks for p in curve.points if p.scale >= 1} == {1}
    assert cache.whatif.queried_blocks == 2
    assert cache.whatif.hit_blocks["1"] == 1


def test_a_gap_takes_nothing_from_the_counters() -> None:
    cache = Cache()
    snapshot = PoolSnapshot(8, 4, 0, 0, [0] * 8, [A, *[None] * 7], [0])
    for number in range(3):
        cache.on_batch(batch_of(snapshot, PrefixLookup(number, 5, [A], 1)))
        assert cache.whatif.hit_blocks["1"] == number + 1
        cache.on_gap()


def test_a_pool_built_anew_in_its_size_without_a_gap_goes_on() -> None:
    cache = Cache()
    cache.on_batch(batch_of(PoolCreated(8, 4, 0)))
    cache.on_batch(batch_of(PoolCreated(8, 4, 0), time_ns=9 * SECOND))
    curve = cache.whatif.curve(None)
    assert curve is not None
    assert curve.seconds == 9
