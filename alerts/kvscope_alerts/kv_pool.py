"""Alerts about the KV pool and preemption."""

from kvscope_alerts.recordings import RECOMPUTED_RATIO_10M
from kvscope_alerts.rule import ENGINE, Alert, Group
from kvscope_alerts.thresholds import HELD_SECONDS, HELD_SHARE
from kvscope_alerts.timing import Timing
from kvscope_monitoring.selectors import series
from kvscope_monitoring.thresholds import (
    EXHAUSTION_LEVEL,
    EXHAUSTION_PROBABILITY,
    EXHAUSTION_SECONDS,
    POOL_SATURATED,
    RECOMPUTED_NOTICEABLE,
    RECOMPUTED_SHARE,
)

_ACTIVE = series("kvscope_kv_active_ratio")


def kv_pool_groups(timing: Timing) -> list[Group]:
    return [
        Group(
            name="kvscope-kv-pool",
            rules=[_saturated(timing), *_predicted(), _storm(), _held(timing)],
        ),
    ]


def _saturated(timing: Timing) -> Alert:
    fullest = f"max_over_time({_ACTIVE}[{timing.range('10m')}])"
    return Alert(
        name="KvscopeKvPoolSaturated",
        severity="warning",
        topic="kv-pool",
        expr=f"{RECOMPUTED_RATIO_10M} > {RECOMPUTED_NOTICEABLE:.2f}\n"
        f"and {fullest} > {POOL_SATURATED:.2f}",
        wait="20m",  # no hurry: if users are affected, late first tokens page earlier
        keep="5m",
        summary="A KV pool is too small for its load: preempted requests are computed again.",
        description="The KV pool "
        f"of {ENGINE} fills again and again, and running requests lose their blocks: "
        "{{ $value | humanizePercentage }} of the tokens computed in the last ten minutes had been "
        "computed before.",
        board="kvscope-kv-pool",
    )


def _predicted() -> tuple[Alert, Alert]:
    long, short = EXHAUSTION_SECONDS
    return (
        Alert(
            name="KvscopeKvExhaustionPredicted",
            severity="info",
            topic="kv-pool",
            expr=_likely(long),
            wait="15s",
            keep="2m",
            summary="A KV pool will probably run out of blocks within a minute.",
            description="With a probability of {{ $value | humanizePercentage }} the KV pool of "
            f"{ENGINE} will not have room for all its running requests within a minute. "
            "Then they preempt each other.",
            board="kvscope-kv-pool",
        ),
        Alert(
            name="KvscopeKvExhaustionImminent",
            severity="info",
            topic="kv-pool",
            expr=_likely(short),
            wait="15s",
            keep="2m",
            summary="A KV pool will probably run out of blocks within half a minute.",
            description="With a probability of {{ $value | humanizePercentage }} the KV pool "
            f"of {ENGINE} will be unable to serve its running requests at some point in the next "
            "half minute: preemption follows unless some of them end.",
            board="kvscope-kv-pool",
        ),
    )


def _likely(seconds: int) -> str:
    """Exhaustion is likely; the horizon is dropped, so that the alert has its engine's labels."""
    probability = series("kvscope_kv_exhaustion_probability", horizon_seconds=str(seconds))
    return (
        f"sum without (horizon_seconds) ({probability}) > {EXHAUSTION_PROBABILITY:.2f}\n"
        f"and {_ACTIVE} > {EXHAUSTION_LEVEL:.2f}"
    )


def _storm() -> Alert:
    return Alert(
        name="KvscopePreemptionStorm",
        severity="warning",
        topic="kv-pool",
        expr=f"{RECOMPUTED_RATIO_10M} > {RECOMPUTED_SHARE:.2f}",
        wait="10m",  # no hurry here, either
        keep="5m",
        summary="An engine spends its time on recomputing preempted requests.",
        description=f"{{{{ $value | humanizePercentage }}}} of the tokens that {ENGINE} computed "
        "in the last ten minutes had been computed before and were lost to preemption.",
        board="kvscope-kv-pool",
    )


def _held(timing: Timing) -> Alert:
    share = f"(sum without (reason) ({series('kvscope_kv_held_blocks')}) / "
    share += f"{series('kvscope_kv_usable_blocks')})"
    oldest = series("kvscope_kv_oldest_hold_seconds")
    return Alert(
        name="KvscopeKvBlocksHeld",
        severity="warning",
        topic="kv-pool",
        expr=f"({share} > {HELD_SHARE:.2f} and {_ACTIVE} > {POOL_SATURATED:.2f})\n"
        f"or ({share} > 0 and {oldest} > {timing.seconds(f'{HELD_SECONDS}s'):g})",
        wait="5m",
        summary="Requests that have ended keep blocks of a KV pool.",
        description="{{ $value | humanizePercentage }} of the usable blocks of "
        f"{ENGINE} belong to requests that have ended: transfers of their KV take too long, or do "
        "not end.",
        board="kvscope-kv-pool",
    )
