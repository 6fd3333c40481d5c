"""Decides whether a full pool is a fault: only if requests wait for it, or will.

Under load one of many engines is always full, and a pool that is full of work is fine.
"""

from dashboards.kit import thresholds as limits
from dashboards.kit.panels import Q
from dashboards.kit.queries import BY_ENGINE, peak, rate, recent, series, total, worst
from kvscope_monitoring.thresholds import EXHAUSTION_LEVEL, EXHAUSTION_PROBABILITY, POOL_SATURATED

CALM, CROWDED, SOON = "no pressure", "pressure", "pressure soon"
"""Legends of the states; one of them has a value."""


JUDGED = {CROWDED: limits.ALWAYS_WORTH_A_LOOK, SOON: limits.ALWAYS_WORTH_A_LOOK}
"""Their colours; the panel has NEVER_A_FAULT."""


def fullest_pool() -> tuple[Q, ...]:
    """The fullest pool of our engines."""
    return fullest(
        peak(series("kvscope_kv_active_ratio")),
        total(peak(series("kvscope_requests", state=("waiting", "swapped"))), BY_ENGINE),
        total(recent(rate("kvscope_preemptions_total")), BY_ENGINE),
        soon=f"{worst(exhaustion(), BY_ENGINE)} >= {EXHAUSTION_PROBABILITY}",
    )


def crowded() -> str:
    """Engines with a full pool for which requests wait."""
    waiting = series("kvscope_requests", state=("waiting", "swapped"))
    full = f"{worst(peak(series('kvscope_kv_active_ratio')), BY_ENGINE)} > {POOL_SATURATED}"
    return f"{full} and on ({BY_ENGINE}) ({total(waiting, BY_ENGINE)} > 0)"


def exhaustion() -> str:
    """Probability that a pool runs out within a minute; only if the alert would use it."""
    probability = series("kvscope_kv_exhaustion_probability", horizon_seconds="60")
    active = series("kvscope_kv_active_ratio")
    half_full = f"{worst(active, BY_ENGINE)} > {EXHAUSTION_LEVEL}"
    return f"({probability} and on ({BY_ENGINE}) ({half_full}))"


def fullest(active: str, waiting: str, preempted: str, *, soon: str = "") -> tuple[Q, ...]:
    """The fullest pool, as one of two queries, or three.

    active: highest shares of the usable blocks that sequences reference, because a preemption makes
    room for a moment. waiting, preempted: requests that wait, and preemptions a second; each by
    engine. soon: engines whose pool will run out.
    """
    crowded = (
        f"{worst(active, BY_ENGINE)} > {POOL_SATURATED}"
        f" and on ({BY_ENGINE}) ({waiting} > 0 or {preempted} > 0)"
    )
    fault = f"({crowded}) or ({soon})" if soon else crowded
    found = [Q(f"{worst(active)} unless on () ({fault})", CALM), Q(worst(crowded), CROWDED)]
    if soon:
        found.append(Q(f"({worst(active)} and on () ({soon}))\nunless on () ({crowded})", SOON))
    return tuple(found)
