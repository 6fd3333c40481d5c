"""Every number that a rule compares with and a panel draws, with its reason.

Numbers used only by rules are in `alerts/kvscope_alerts/thresholds.py`; those used only by panels,
and all colours, in `dashboards/kit/thresholds.py`."""

POOL_SATURATED = 0.90
"""Share of the usable blocks that sequences reference. At 90 % a single long prompt can fill the
pool. A pool that preempts moves between 0.9 and 1: each preemption returns all blocks of a
request."""
EXHAUSTION_PROBABILITY = 0.80
"""Probability of exhaustion within a minute, and within half of one. The forecast is calibrated
(forecast.md): at least four of five such forecasts come true. There is no alert on it: a full pool
makes requests wait; whether users are hurt shows in first tokens and recomputed tokens.
"""
EXHAUSTION_SECONDS = (60, 30)
"""A router can send new requests elsewhere within a minute; within half of one it is too late for
those that are on their way."""
EXHAUSTION_LEVEL = 0.50
"""Active share below which that probability is ignored. A forecast for a pool that is half empty is
as reliable (forecast.md), but speaks of requests that have not come yet: on a pool that fills every
few minutes such a forecast would hold for most of the day, with nothing to look at."""
RECOMPUTED_NOTICEABLE = 0.01
"""Share of the tokens that steps compute, over ten minutes and for twenty more. A well-sized pool
recomputes less; one preemption does not last that long."""
RECOMPUTED_SHARE = 0.10
"""Share of the tokens that steps compute. A tenth of the device's work is wasted; in our experience
sequences that preempt each other do not stop by themselves."""
REGRETTED_SHARE = 0.10
"""Share of the prompt tokens that are computed again because their blocks had been evicted.
Prefill that is a tenth cheaper is worth a look at the pool's size."""
FLEET_LOSS = 0.10
"""Share of the prompt tokens that the replicas of a fleet lose by one cause: worth a look for the
same reason."""
FLEET_FULL = 0.80
"""Share of its time that a process spends on folding a fleet's answers, or of a core that it takes.
Both are at most 1, of one interpreter: then answers come faster than they are folded, the figures
lag, and replicas are lost whose sidecars no longer keep what was not asked for in time."""
WHATIF_ERROR = 0.02
"""Share of the queried blocks. The prediction for the present size is exact if the engine evicts
the oldest release first; two points of hit ratio are more than most changes of a size are worth."""
HOST_USED_SHARE = 0.95
"""Share of the control group's limit, without file cache that can be dropped. The kernel kills at
1."""
STEP_AGE_SECONDS = 60
"""Seconds with work but without a step. The longest real step of a large prefill takes a few
seconds; at --stall-seconds (60 by default) /health answers 503."""
