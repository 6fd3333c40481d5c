"""The forecast beats a threshold on usage and comes true as often as it says.

The short form of `python -m benchmarks.forecast`, whose tables are in docs/studies/forecast.md.
"""

from statistics import mean

import pytest

from benchmarks.forecast.__main__ import brier, deciles, play
from benchmarks.forecast.loads import LOADS

SECONDS = 2_400.0
"""Most of it before the forecast has learnt much."""
MEAN_ERROR = 0.15
"""Between what was said and what came, over the deciles of one load and horizon: mostly chance."""


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["steady", "wandering"])
def test_the_forecast_beats_a_threshold_and_comes_true_as_often_as_it_says(name: str) -> None:
    run = play(LOADS[name], seed=2, seconds=SECONDS)
    ours, usage, _ = (sum(scores) for scores in zip(*map(brier, run.values()), strict=True))
    assert ours < usage
    for horizon, scored in run.items():
        errors = [abs(sum(s.ours - s.came for s in cell)) for cell in deciles(scored)]
        assert sum(errors) / len(scored) < MEAN_ERROR, horizon
        assert mean(s.ours for s in scored) == pytest.approx(mean(s.came for s in scored), abs=0.1)
