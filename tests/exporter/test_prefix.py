"""Prefix cache accounting: hits and misses add up, causes are right or absent."""

from kvscope_events.events import BlocksCached, BlocksEvicted, PoolCreated, PoolSnapshot, PrefixLookup
from exporter.fold import Prefix
from tests.exporter.support import block_hash

A, B, C, D = (block_hash(number) for number in range(4))


def prefix_with(*names: bytes, max_seen_names: int = 100) -> Prefix:
    """Blocks of 4 tokens; `names` are resident."""
    prefix = Prefix(max_seen_names)
    prefix.apply(PoolCreated(8, 4, 0))
    prefix.apply(BlocksCached(0, list(range(len(names))), list(names), None))
    return prefix


def test_hits_and_misses_sum_to_the_queried_blocks() -> None:
    prefix = prefix_with(A, B, C)
    prefix.apply(BlocksEvicted([2], [C], "capacity"))
    prefix.apply(PrefixLookup(1, 18, [A, B, C, D], 2))
    assert prefix.queried_tokens == {"first": 18, "resumed": 0}
    assert prefix.hit_tokens == {"first": 8, "resumed": 0}
    assert prefix.queried_blocks == {"first": 5, "resumed": 0}
    assert prefix.hit_blocks == {"first": 2, "resumed": 0}
    assert prefix.missed_blocks == {"cold": 1, "evicted": 1, "unreachable": 0, "partial": 1}


def test_a_resumed_lookup_is_kept_apart() -> None:
    prefix = prefix_with(A)
    prefix.apply(PrefixLookup(1, 6, [A], 1, resumed=True))
    assert prefix.queried_tokens == {"first": 0, "resumed": 6}
    assert prefix.hit_blocks == {"first": 0, "resumed": 1}


def test_a_resident_block_behind_a_missing_one_is_unreachable() -> None:
    prefix = prefix_with(A, B, C)
    prefix.apply(BlocksEvicted([1], [B], "capacity"))
    prefix.apply(PrefixLookup(1, 13, [A, B, C], 1))
    assert prefix.missed_blocks == {"cold": 0, "evicted": 1, "unreachable": 1, "partial": 1}


def test_full_blocks_only_have_no_partial_one() -> None:
    prefix = prefix_with()
    prefix.apply(PrefixLookup(1, 8, [A, B], 0))
    assert prefix.missed_blocks["partial"] == 0
    prefix.apply(PrefixLookup(2, 8, [A], 0))  # the last full block must be computed: it cannot hit
    assert prefix.missed_blocks["partial"] == 1


def test_a_name_is_gone_when_its_last_copy_is() -> None:
    prefix = prefix_with(A, A)
    prefix.apply(BlocksEvicted([0], [A], "capacity"))
    prefix.apply(PrefixLookup(1, 5, [A], 0))
    assert prefix.missed_blocks["unreachable"] == 1
    prefix.apply(BlocksEvicted([1], [A], "capacity"))
    prefix.apply(PrefixLookup(1, 5, [A], 0))
    assert prefix.missed_blocks["evicted"] == 1


def test_cold_and_evicted_disappear_when_the_memory_is_full() -> None:
    prefix = prefix_with(A, B, max_seen_names=2)
    assert "cold" in prefix.missed_blocks
    prefix.apply(BlocksCached(0, [2], [C], None))
    assert prefix.missed_blocks.keys() == {"unreachable", "partial"}
    prefix.apply(BlocksCached(0, [3], [D], None))
    assert prefix.missed_blocks.keys() == {"unreachable", "partial"}


def test_causes_that_need_the_state_are_absent_until_it_is_known_again() -> None:
    prefix = prefix_with(A)
    prefix.on_gap()
    prefix.apply(PrefixLookup(1, 9, [A, B], 1))
    assert prefix.missed_blocks == {"partial": 1}
    assert prefix.hit_blocks["first"] == 1
    prefix.apply(PoolSnapshot(8, 4, 0, 0, [0] * 8, [B, *[None] * 7], [0]))
    prefix.apply(PrefixLookup(1, 9, [A, B], 0))
    assert prefix.missed_blocks == {"cold": 0, "evicted": 1, "unreachable": 1, "partial": 2}


def test_nothing_is_counted_before_the_block_size_is_known() -> None:
    prefix = Prefix()
    prefix.apply(PrefixLookup(1, 9, [A, B], 1))
    prefix.apply(BlocksCached(0, [0], [A], None))
    prefix.apply(BlocksEvicted([0], [A], "capacity"))
    assert prefix.queried_tokens["first"] == 0
