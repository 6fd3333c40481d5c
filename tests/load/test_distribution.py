"""Quantiles from buckets against quantiles of the sorted samples."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope.load.distribution import Distribution


@given(st.lists(st.floats(1e-6, 3600), min_size=1, max_size=300))
def test_summary_is_that_of_the_samples(samples: list[float]) -> None:
    histogram = Distribution()
    for sample in samples:
        histogram.observe(sample)
    summary = histogram.summary()
    assert summary is not None
    ordered = sorted(samples)
    assert summary.count == len(samples)
    assert summary.max == ordered[-1]
    assert summary.mean == pytest.approx(statistics.fmean(samples))
    for q, found in ((0.5, summary.p50), (0.9, summary.p90), (0.99, summary.p99)):
        exact = ordered[math.ceil(q * len(ordered)) - 1]
        assert found == pytest.approx(exact, rel=0.0101)


def test_nothing_observed_is_no_summary() -> None:
    assert Distribution().summary() is None


def test_no_time_at_all_is_counted() -> None:
    histogram = Distribution()
    histogram.observe(0.0)
    summary = histogram.summary()
    assert summary is not None
    assert (summary.count, summary.p99, summary.max) == (1, 0.0, 0.0)


def test_memory_is_bounded() -> None:
    histogram = Distribution()
    for exponent in range(-60, 36):
        for mantissa in range(100, 1000, 7):
            histogram.observe(min(3600.0, mantissa / 100 * 10 ** (exponent / 10)))
    assert len(histogram._buckets) < 1200
