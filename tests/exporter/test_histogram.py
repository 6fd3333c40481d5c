"""Bucket semantics: at or below the bound, cumulative, exemplars in their own bucket."""

import pytest

from kvscope_exporter.state import Exemplar, Histogram


def test_a_value_on_a_bound_belongs_to_that_bucket() -> None:
    histogram = Histogram((0.01, 0.1))
    for value in (0.0, 0.01, 0.010001, 0.1, 0.2):
        histogram.observe(value)
    assert [b.observations for b in histogram.at((0.01, 0.1))] == [2, 4, 5]
    assert histogram.total == pytest.approx(0.320001)


def test_a_counted_observation_is_many_equal_ones() -> None:
    counted, single = Histogram((1, 2)), Histogram((1, 2))
    counted.observe(1.5, 3)
    for _ in range(3):
        single.observe(1.5)
    assert counted.at((1, 2)) == single.at((1, 2))
    assert counted.total == single.total


def test_it_reads_at_any_subset_of_its_bounds_and_no_other() -> None:
    histogram = Histogram((1, 2, 3, 4))
    for value in (0.5, 1.5, 2.5, 3.5, 9):
        histogram.observe(value)
    assert [(b.bound, b.observations) for b in histogram.at((2, 3))] == [
        (2, 2),
        (3, 3),
        (float("inf"), 5),
    ]
    with pytest.raises(ValueError, match="not all bounds"):
        histogram.at((2.5,))


def test_the_newest_exemplar_of_merged_buckets_wins_and_stays_in_its_range() -> None:
    histogram = Histogram((1, 2, 3))
    histogram.mark(0.5, "old", 1)
    histogram.mark(1.5, "new", 2)
    histogram.mark(9.0, "slow", 3)
    by_bound = {bucket.bound: bucket.exemplar for bucket in histogram.at((2, 3))}
    assert by_bound[2] == Exemplar("new", 1.5, 2)
    assert by_bound[3] is None
    assert by_bound[float("inf")] == Exemplar("slow", 9.0, 3)
