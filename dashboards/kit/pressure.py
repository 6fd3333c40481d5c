"""Whether a full pool is a fault: only where somebody waits for it.

Under load one of many engines is always full, and a pool that is full of work is as it should be.
"""

from dashboards.kit import thresholds as limits
from dashboards.kit.panels import Q
from dashboards.kit.queries import BY_ENGINE, RATE_WINDOW, rate, series, total, worst

CALM, CROWDED = "no pressure", "pressure"
"""Legends of the two states, of which one has a value."""

_CROWDED_FROM = limits.POOL_USAGE[1][0]
"""Where the alert of a saturated pool begins, too: one that preempts moves between it and 1."""

JUDGED = {CROWDED: limits.ALWAYS_WORTH_A_LOOK}
"""Their colours, beside NEVER_A_FAULT for the panel."""


def fullest_pool() -> tuple[Q, Q]:
    """The fullest pool of our engines."""
    active = series("kvscope_kv_active_ratio")
    return fullest(
        active,
        f"max_over_time({active}[{RATE_WINDOW}])",
        total(series("kvscope_requests", state=("waiting", "swapped")), BY_ENGINE),
        total(rate("kvscope_preemptions_total"), BY_ENGINE),
    )


def fullest(active: str, peak: str, waiting: str, preempted: str) -> tuple[Q, Q]:
    """The fullest pool, as one of two queries.

    active: shares of the usable blocks that sequences reference. peak: their maxima in the rate
    window, because a preemption makes room for a moment. waiting, preempted: requests that wait,
    and preemptions a second; each by engine.
    """
    crowded = (
        f"{worst(peak, BY_ENGINE)} > {_CROWDED_FROM}"
        f" and on ({BY_ENGINE}) ({waiting} > 0 or {preempted} > 0)"
    )
    return Q(f"{worst(active)} unless on () ({crowded})", CALM), Q(worst(crowded), CROWDED)
