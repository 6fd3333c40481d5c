"""Alerts about the KV pool and the prefix cache in it."""

from kvscope_alerts.recordings import HIT_RATIO_6H, HIT_RATIO_10M, RECOMPUTED_RATIO_10M
from kvscope_alerts.rule import ENGINE, Alert, Group
from kvscope_alerts.thresholds import (
    HELD_SECONDS,
    HELD_SHARE,
    HIT_RATIO_LEFT,
    HIT_RATIO_WORTH,
    PREFIX_TOKENS_PER_SECOND,
)
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import series
from kvscope_monitoring.thresholds import POOL_SATURATED, RECOMPUTED_NOTICEABLE

_ACTIVE = series("kvscope_kv_active_ratio")


def kv_pool_groups(timing: Timing) -> list[Group]:
    rules = [_storm(timing), _held(timing), _collapsed(timing)]
    return [Group(name="kvscope-kv-pool", rules=[*rules])]


def _storm(timing: Timing) -> Alert:
    fullest = f"max_over_time({_ACTIVE}[{timing.range('10m')}])"
    return Alert(
        name="KvscopePreemptionStorm",
        severity="warning",
        topic="kv-pool",
        expr=f"{RECOMPUTED_RATIO_10M} > {RECOMPUTED_NOTICEABLE:.2f}\n"
        f"and {fullest} > {POOL_SATURATED:.2f}",
        wait="20m",  # no hurry: if users are affected, late first tokens tell earlier
        keep="5m",
        summary="A KV pool is too small for its load: preempted requests are computed again.",
        description="The KV pool "
        f"of {ENGINE} fills again and again, and running requests lose their blocks: "
        "{{ $value | humanizePercentage }} of the tokens computed in the last ten minutes had been "
        "computed before.",
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


def _collapsed(timing: Timing) -> Alert:
    """Silent for half an hour after a start, since an empty cache fills by itself. A restart at the
    same address shows as a counter reset, or as a missing counter half an hour ago."""
    queried = series(formulas.QUERIED_TOKENS, phase="first")
    before = f"({HIT_RATIO_6H} offset {timing.range('30m')})"
    return Alert(
        name="KvscopePrefixHitRateCollapsed",
        severity="warning",
        topic="prefix-cache",
        expr=f"{HIT_RATIO_10M} < {HIT_RATIO_LEFT} * {before}\n"
        f"and {before} > {HIT_RATIO_WORTH}\nand sum without (phase) "
        f"(rate({queried}[{timing.range('10m')}])) > {PREFIX_TOKENS_PER_SECOND}\nunless sum "
        f"without (phase) (resets({queried}[{timing.range('30m')}])) > 0\n"
        f"and sum without (phase) ({queried} offset {timing.range('30m')}) >= 0",
        wait="5m",
        keep="5m",
        summary="The prefix cache hits less than half as often as it used to.",
        description=f"{ENGINE} found {{{{ $value | humanizePercentage }}}} of the prompt tokens in "
        "its prefix cache in the last ten minutes, less than half of its ratio over the six hours "
        "before.",
        board="kvscope-prefix-cache",
    )
