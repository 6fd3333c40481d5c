"""The horizons of the forecast, and the moments at which demand is computed for them."""

HORIZONS = (10, 30, 60, 300)
"""Seconds: too late to act, time to shed load, to route elsewhere, to add a replica."""

GRID = (
    *(1.0, 2.0, 3.5, 5.0, 7.5, 10.0, 13.0, 16.0, 20.0, 25.0, 30.0, 36.0, 42.0, 48.0, 54.0, 60.0),
    *(60.0 + 10.0 * tenth for tenth in range(1, 25)),
)
"""Seconds ahead. Dense enough that demand hardly moves between two of them; every horizon is one."""

LAST_OF = tuple(GRID.index(float(horizon)) for horizon in HORIZONS)
"""Index in the grid at which each horizon ends."""

TRUST = (1.0, 0.9, 0.8, 0.5)
"""Slope that the model's log odds are given at each horizon before outcomes are known: the further
ahead, the more of what the model says is an error of its rates and lengths."""
