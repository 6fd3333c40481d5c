"""The curve of one real run against further real runs, with pools of the sizes that it predicts."""

from pathlib import Path

import pytest

from tests.support.prefix_trees import Load
from tools.checks.whatif_check import OWN_LIMIT, compare, own_run

LOAD = Load(requests=250, clients=4, conversations=10)
BLOCKS = 160


@pytest.mark.nightly
@pytest.mark.slow
def test_half_and_double_the_pool_of_our_engine(tmp_path: Path) -> None:
    found, comparisons = compare(own_run(LOAD), BLOCKS, (0.5, 2.0), tmp_path)
    assert found.pool is not None
    same, half, double = comparisons
    assert same.run.hit_blocks == found.pool.hit_blocks
    assert half.run.hit_ratio + 0.05 < same.run.hit_ratio < double.run.hit_ratio - 0.05
    assert half.run.preemptions == 0, "too small for the requests that run: not modelled"
    for one in comparisons:
        assert abs(one.error) <= OWN_LIMIT, one
