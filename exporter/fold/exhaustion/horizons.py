"""The horizons of the forecast, and the moments at which demand is computed for them."""

HORIZONS = (10, 30, 60, 300)
"""Seconds: too late to act, time to shed load, to route elsewhere, to add a replica."""

GRID = (
    *(1.0, 2.0, 3.5, 5.0, 7.5, 10.0, 13.0, 16.0, 20.0, 25.0, 30.0, 36.0, 42.0, 48.0, 54.0, 60.0),
    *(60.0 + 10.0 * tenth for tenth in range(1, 25)),
)
"""Seconds ahead, dense enough that demand hardly changes in between; includes every horizon."""

LAST_OF = tuple(GRID.index(float(horizon)) for horizon in HORIZONS)
"""Index in the grid at which each horizon ends."""

FIRST_WEIGHTS = (
    (-0.4, 0.85, 1.2, 1.5, -0.4),
    (-0.4, 0.7, 0.8, 1.1, -0.3),
    (-0.3, 0.6, 0.6, 1.1, -0.2),
    (0.0, 0.35, 0.5, 1.0, 0.5),
)
"""Weights of the log odds at each horizon before outcomes are known: of a constant, the model's log
odds, and each part of `State`. From simulated loads: the further ahead, the more of the model's
forecast is error in rates and lengths. At 300 s they mostly state how often these loads exhaust
their pools, so only half of them is used."""
