"""Alerts about capacity that is missing or unused: a smaller pool, no traffic, a tier too small.

They do not hurt users yet, and nothing else shows them: service levels are the model's.
"""

from kvscope_alerts.rule import ENGINE, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import (
    IDLE_FIRST_TOKENS,
    OUTLIER_REPLICAS,
    POOL_OF_MEDIAN,
    THRASH_BLOCKS,
    THRASH_SHARE,
)
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import series


def replica_groups(timing: Timing, scope: Scope) -> list[Group]:
    return [
        Group(
            name="kvscope-replicas",
            rules=[_smaller(scope), _idle(timing, scope), _thrash(timing)],
        )
    ]


def _smaller(scope: Scope) -> Alert:
    """Blocks are counted when the server starts: memory held by another process then is missing
    until the next start."""
    blocks = series("kvscope_kv_usable_blocks")
    each = f"max by ({scope.engine}) ({blocks})"
    of_model = f"on ({scope.model}) group_left ()"
    return Alert(
        name="KvscopePoolSmaller",
        severity="warning",
        topic="fleet",
        expr=f"{each}\n/ {of_model} quantile by ({scope.model}) (0.5, {each})\n"
        f"< {POOL_OF_MEDIAN}\n"
        f"and on ({scope.model}) count by ({scope.model}) ({each}) >= {OUTLIER_REPLICAS}",
        wait="10m",
        summary="One replica has a smaller KV pool than the others of its model.",
        description=f"{ENGINE} came up with {{{{ $value | humanizePercentage }}}} of the blocks of "
        "the median replica of its model: it preempts first, and finds fewer prefixes.",
        board="kvscope-kv-pool",
    )


def _idle(timing: Timing, scope: Scope) -> Alert:
    """For an engine that was there all the time. Its requests are checked as well, so that one long
    answer does not count as silence."""
    window = timing.range("15m")
    tokens = formulas.first_tokens(window, f"by ({scope.engine})")
    count = f"{tokens} * {timing.seconds('15m'):g}"
    work = f"max_over_time({series('kvscope_requests')}[{window}])"
    asked = f"sum by ({scope.engine}) ({work})"
    there = f"sum by ({scope.engine}) ({series('kvscope_requests')} offset {window})"
    median = f"quantile by ({scope.model}) (0.5, {count})"
    return Alert(
        name="KvscopeReplicaIdle",
        severity="warning",
        topic="fleet",
        expr=f"{asked} == 0\n"
        f"and {tokens} == 0\n"
        f"and {there} >= 0\n"
        f"and on ({scope.model}) {median} >= {IDLE_FIRST_TOKENS}\n"
        f"and on ({scope.model}) count by ({scope.model}) ({tokens}) >= {OUTLIER_REPLICAS}",
        wait="10m",
        summary="One replica gets no requests, and the others of its model do.",
        description=f"{ENGINE} has had no request for a quarter of an hour, while the other "
        "replicas of its model serve: the router does not send it any.",
        board="kvscope-overview",
    )


def _thrash(timing: Timing) -> Alert:
    window = timing.range("10m")
    below = 'tier!="device"'
    stored = f"rate({series('kvscope_kv_tier_stored_blocks_total', below)}[{window}])"
    returned = f"rate({series('kvscope_kv_tier_returned_blocks_total', below)}[{window}])"
    return Alert(
        name="KvscopeTierThrashes",
        severity="warning",
        topic="prefix-cache",
        expr=f"{returned}\n/ ({stored} > {THRASH_BLOCKS})\n> {THRASH_SHARE}",
        wait="30m",
        keep="10m",
        summary="A cache tier below the GPU stores what it has only just evicted.",
        description="{{ $value | humanizePercentage }} of the blocks that the tier "
        f"{{{{ $labels.tier }}}} of {ENGINE} stored in the last ten minutes had been there and had "
        "been removed: it is too small for what is asked of it, and copies for nothing.",
        board="kvscope-prefix-cache",
    )
