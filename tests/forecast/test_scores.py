"""The forecast beats what people have on every load, and comes true as often as it says.

The short form of `python -m benchmarks.forecast`, whose tables are in docs/studies/forecast.md.
"""

import pytest

from benchmarks.forecast.loads import LOADS, Load
from benchmarks.forecast.rivals import Scrapes
from benchmarks.forecast.scores import Forecasts, play

SECONDS = 2_400.0
"""Most of it before the forecast has learnt much; at 300 s it would hold eight outcomes."""
WEEKLY = (pytest.mark.nightly, pytest.mark.weekly)
MARKS = {
    "steady": (pytest.mark.nightly,),
    **dict.fromkeys(
        ("bursts", "regime change", "crowds", "clients", "nights"), (pytest.mark.nightly,)
    ),
}
"""All others run weekly."""
MEAN_ERROR = 0.15
"""Between what was said and what came, over the deciles of one load and horizon: mostly chance."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "load",
    [pytest.param(load, marks=MARKS.get(load.name, WEEKLY)) for load in LOADS],
    ids=lambda load: load.name,
)
def test_the_forecast_beats_a_threshold_and_a_line(load: Load) -> None:
    results = [part for part in play(load, seed=2, seconds=SECONDS) if part.horizon <= 60]
    scores = [forecasts.brier() for forecasts in results]
    ours, usage, linear = (sum(s[who] for s in scores) for who in ("ours", "usage", "linear"))
    assert ours < min(usage, linear)
    for forecasts in results:
        assert forecasts.error() < MEAN_ERROR, forecasts.horizon


def test_a_line_is_drawn_as_prometheus_draws_it() -> None:
    scrapes = Scrapes()
    for second in range(0, 301, 5):  # every third one is scraped
        scrapes.offer(float(second), 0.2 + 0.001 * second)
    assert scrapes.predict_linear(300, 120, 60) == pytest.approx(0.2 + 0.36)
    assert scrapes.predict_linear(10, 120, 60) is None
    assert scrapes.full_by(300, 120, 600) == 1.0
    assert scrapes.full_by(300, 120, 60) == 0.0


def test_an_onset_is_foreseen_by_the_forecast_half_a_minute_before_it() -> None:
    """Moments within an exhaustion are easy, and are no onsets."""
    times = [5.0 * number for number in range(100)]
    forecasts = Forecasts(60, times=times, onsets=[100.0, 300.0])
    forecasts.ours = [0.9 if at in (70.0, 400.0) or 280 <= at < 340 else 0.1 for at in times]
    forecasts.came = [float(40 <= at < 100 or 240 <= at < 340) for at in times]
    assert forecasts.foreseen(0.8, 30.0) == 1
    assert forecasts.false_alarms(0.8) == 1
    assert forecasts.since(200.0).foreseen(0.8, 30.0) == 0
