"""Alerts about the KV pool, preemption and the prefix cache."""

from alerts.promql import name, series
from alerts.recordings import HIT_RATIO_6H, HIT_RATIO_10M, QUERIED_TOKENS, RECOMPUTED_RATIO_2M
from alerts.rule import ENGINE, Alert, Group
from alerts.thresholds import (
    EXHAUSTION_LEVELS,
    EXHAUSTION_SECONDS,
    HIT_RATIO_LEFT,
    HIT_RATIO_WORTH,
    POOL_SATURATED,
    PREFIX_TOKENS_PER_SECOND,
    RECOMPUTED_SHARE,
)
from alerts.timing import Timing

_USED = f"max without (basis) ({series('kvscope_kv_usage_ratio', basis='active')})"
_FORECAST = name("kvscope_kv_time_to_exhaustion_seconds")
_USABLE = (
    f"({name('kvscope_kv_capacity_blocks')}"
    f" - ignoring (state) {series('kvscope_kv_blocks', state='reserved')})"
)


def kv_pool_groups(timing: Timing) -> list[Group]:
    return [
        Group(name="kvscope-kv-pool", rules=[_saturated(timing), *_predicted(), _storm()]),
        Group(name="kvscope-prefix-cache", rules=[_collapsed(timing)]),
    ]


def _saturated(timing: Timing) -> Alert:
    preempted = series("kvscope_preemptions_total", cause="out_of_blocks")
    return Alert(
        name="KvscopeKvPoolSaturated",
        severity="warning",
        topic="kv-pool",
        expr=f"{_USED} > {POOL_SATURATED:.2f}\n"
        f"and sum without (mode, cause) (rate({preempted}[{timing.range('2m')}])) > 0",
        wait="1m",
        keep="5m",
        summary="A KV pool is full and preempts running requests.",
        description=f"Requests hold {{{{ $value | humanizePercentage }}}} of the KV blocks of "
        f"{ENGINE}, and running ones lose theirs: they are computed again later.",
        board="kvscope-kv-pool",
    )


def _predicted() -> tuple[Alert, Alert]:
    (low, high), (long, short) = EXHAUSTION_LEVELS, EXHAUSTION_SECONDS
    committed = name("kvscope_kv_committed_blocks")
    return (
        Alert(
            name="KvscopeKvExhaustionPredicted",
            severity="info",
            topic="kv-pool",
            expr=f"{_FORECAST} < {long}\nand {_USED} > {low:.2f}\nand {committed} > {_USABLE}",
            wait="2m",
            keep="2m",
            summary="A KV pool will be full within minutes.",
            description="At the trend of the last minute, running requests fill the KV pool of "
            f"{ENGINE} in {{{{ $value | humanizeDuration }}}}, and they may grow beyond it. Then "
            "they preempt each other.",
            board="kvscope-kv-pool",
        ),
        Alert(
            name="KvscopeKvExhaustionImminent",
            severity="warning",
            topic="kv-pool",
            expr=f"{_FORECAST} < {short}\nand {_USED} > {high:.2f}\nand {committed} > {_USABLE}",
            wait="15s",
            keep="2m",
            summary="A KV pool is about to run out of blocks, and its requests want more.",
            description="Running requests fill the KV pool of "
            f"{ENGINE} in {{{{ $value | humanizeDuration }}}}, and they may grow to more blocks "
            "than there are: preemption follows unless some of them end.",
            board="kvscope-kv-pool",
        ),
    )


def _storm() -> Alert:
    return Alert(
        name="KvscopePreemptionStorm",
        severity="critical",
        topic="kv-pool",
        expr=f"{RECOMPUTED_RATIO_2M} > {RECOMPUTED_SHARE:.2f}",
        wait="3m",  # longer than the window: one long request that resumes is no storm
        keep="2m",
        summary="An engine spends its time on computing preempted requests again.",
        description=f"{{{{ $value | humanizePercentage }}}} of the tokens that {ENGINE} computes "
        "were computed before and lost to preemption.",
        board="kvscope-kv-pool",
    )


def _collapsed(timing: Timing) -> Alert:
    queried = series(QUERIED_TOKENS, phase="first")
    before = f"({HIT_RATIO_6H} offset {timing.range('30m')})"
    return Alert(
        name="KvscopePrefixHitRateCollapsed",
        severity="warning",
        topic="prefix-cache",
        expr=f"{HIT_RATIO_10M} < {HIT_RATIO_LEFT} * {before}\n"
        f"and {before} > {HIT_RATIO_WORTH}\n"
        f"and sum without (phase) (rate({queried}[{timing.range('10m')}]))"
        f" > {PREFIX_TOKENS_PER_SECOND}",
        wait="5m",
        keep="5m",
        summary="The prefix cache hits less than half as often as it used to.",
        description=f"{ENGINE} found {{{{ $value | humanizePercentage }}}} of the prompt tokens in "
        "its prefix cache in the last ten minutes, less than half of its ratio over the six hours "
        "before.",
        board="kvscope-prefix-cache",
    )
