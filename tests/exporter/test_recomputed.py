"""Names that are computed again are few, whatever the sequences do."""

from kvscope_exporter.state.cache.evicted import RecomputedNames
from tests.exporter.stream import block_hash


def test_sequences_that_compute_the_same_and_never_end_do_not_fill_the_memory() -> None:
    recomputed = RecomputedNames(10)
    names = [block_hash(number) for number in range(4)]
    for sequence in range(100):
        recomputed.begin(sequence, names, range(4))
        recomputed.check(set())
    assert len(recomputed) == 2


def test_names_cached_meanwhile_do_not_stay_with_their_sequences() -> None:
    recomputed = RecomputedNames(10)
    for sequence in range(100):
        names = [block_hash(4 * sequence + i) for i in range(4)]
        recomputed.begin(sequence, names, range(4))
        recomputed.cache(names)
        recomputed.check(set(names))
    assert len(recomputed) == 2


def test_a_sequence_that_begins_again_leaves_what_it_had_begun() -> None:
    recomputed = RecomputedNames(10)
    a, b = block_hash(1), block_hash(2)
    recomputed.begin(7, [a], [3])
    recomputed.begin(7, [b], [4])
    recomputed.check(set())
    assert recomputed.leading([a], 0) == []
    assert recomputed.leading([b], 0) == [(4, 1)]


def test_more_names_than_the_limit_are_not_begun() -> None:
    recomputed = RecomputedNames(3)
    recomputed.begin(1, [block_hash(number) for number in range(4)], range(4))
    recomputed.check(set())
    assert not recomputed
