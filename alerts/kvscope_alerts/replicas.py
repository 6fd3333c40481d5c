"""Alerts that compare a replica with the others of its model, card and role.

A service level does not see one of fifty. Means are compared, since buckets are coarser than the
differences to detect.
"""

from typing import NamedTuple

from kvscope_alerts.recordings import (
    API_FAILURES,
    BLOCKS,
    ERROR_SHARE_10M,
    ITL_MEAN_10M,
    TTFT_MEAN_10M,
)
from kvscope_alerts.rule import ENGINE, SERVER, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import (
    ERROR_OUTLIER_PAGE,
    ERROR_OUTLIER_SHARE,
    IDLE_FIRST_TOKENS,
    ITL_OUTLIER_FACTOR,
    ITL_OUTLIER_SECONDS,
    OUTLIER_MIN_FIRST_TOKENS,
    OUTLIER_MIN_TOKENS,
    OUTLIER_REPLICAS,
    POOL_OF_MEDIAN,
    TTFT_OUTLIER_FACTOR,
    TTFT_OUTLIER_SECONDS,
)
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.objectives import BURN_MIN_BAD, FAILING_SHARE
from kvscope_monitoring.selectors import series


def replica_groups(timing: Timing, scope: Scope) -> list[Group]:
    return [
        Group(
            name="kvscope-replicas",
            rules=[
                _fails_in_engine(timing, scope),
                _fails_in_api(timing, scope),
                *(_slow(slow, timing, scope) for slow in _SLOW),
                _smaller(scope),
                _idle(timing, scope),
            ],
        )
    ]


def _median(record: str, scope: Scope) -> str:
    peers = scope.peers
    return f"on ({peers}) group_left () quantile by ({peers}) (0.5, {record})"


def _enough(record: str, scope: Scope) -> str:
    """A median of two replicas lies between them."""
    counted = f"count by ({scope.peers}) ({record}) >= {OUTLIER_REPLICAS}"
    return f"and on ({scope.peers}) ({counted})"


def _fails(
    sign: str, expr: str, wait: str, keep: str, description: str, by: tuple[str, ...]
) -> Alert:
    """Fewer failures are the model's budget alone: they concern few users."""
    return Alert(
        name="KvscopeReplicaFails",
        severity="critical",
        topic="slo-errors",
        expr=expr,
        wait=wait,
        keep=keep,
        summary="One replica fails requests.",
        description=description,
        board="kvscope-overview",
        by=by,
        labels={"sign": sign},
    )


def _fails_in_engine(timing: Timing, scope: Scope) -> Alert:
    """A replica that fails immediately looks idle, and a load balancer sends it more."""
    failed = formulas.failed_by_engine(timing.range("10m"), f"by ({scope.engine})")
    return _fails(
        "engine",
        f"{ERROR_SHARE_10M}\n- {_median(ERROR_SHARE_10M, scope)}\n> {ERROR_OUTLIER_SHARE}\n"
        f"{_enough(ERROR_SHARE_10M, scope)}\n"
        f"and on ({scope.engine}) {failed} * {timing.seconds('10m'):g} >= {ERROR_OUTLIER_PAGE}",
        "3m",
        "10m",
        f"{ENGINE} fails {{{{ $value | humanizePercentage }}}} more of its requests than the "
        "median of the model's replicas.",
        ("instance", "model_name", "engine"),
    )


def _fails_in_api(timing: Timing, scope: Scope) -> Alert:
    """Responses that the engines behind the API do not see. It is ongoing, and the server's page
    can be read, but for a lost scrape: a server that has ended has its own alert."""
    by = f"by ({scope.server}, model_name)"
    responding = timing.last(series("kvscope_api_responses_total"), within="1m")
    failures = f"{API_FAILURES}10m"
    responses = formulas.api_responses(timing.range("10m"), by)
    return _fails(
        "api",
        f"{formulas.share(failures, responses)}\n> {FAILING_SHARE:.2f}\n"
        f"and {API_FAILURES}5m > 0\n"
        f"and count {by} ({responding}) > 0\n"
        f"and {failures} * {timing.seconds('10m'):g} >= {BURN_MIN_BAD}",
        "2m",
        "5m",  # longer than the model's budget burns fast, which would be a second page
        f"{SERVER} answered {{{{ $value | humanizePercentage }}}} of the requests of the last ten "
        "minutes with a status of 500 or above, and neither did its engine fail them nor were they "
        "refused for a full queue.",
        ("instance", "model_name"),
    )


class Slow(NamedTuple):
    """A mean that users feel."""

    sign: str
    record: str
    family: str
    factor: float
    floor: float
    least: int
    """Observations in ten minutes below which a few of them determine the mean."""
    description: str


_SLOW = (
    Slow(
        *("first-token", TTFT_MEAN_10M, "kvscope_time_to_first_token_seconds"),
        *(TTFT_OUTLIER_FACTOR, TTFT_OUTLIER_SECONDS, OUTLIER_MIN_FIRST_TOKENS),
        f"First tokens of {ENGINE} take",
    ),
    Slow(
        *("inter-token", ITL_MEAN_10M, "kvscope_inter_token_latency_seconds"),
        *(ITL_OUTLIER_FACTOR, ITL_OUTLIER_SECONDS, OUTLIER_MIN_TOKENS),
        f"Between two tokens {ENGINE} takes",
    ),
)


def _odd(sign: str, expr: str, keep: str | None, description: str) -> Alert:
    return Alert(
        name="KvscopeReplicaSlow",
        severity="warning",
        topic="outlier",
        expr=expr,
        wait="10m",
        keep=keep,
        summary="One replica is slower than the others of its model, or will be.",
        description=description,
        board="kvscope-overview",
        labels={"sign": sign},
    )


def _slow(slow: Slow, timing: Timing, scope: Scope) -> Alert:
    window = timing.range("10m")
    observed = f"sum by ({scope.engine}) (rate({series(slow.family + '_count')}[{window}]))"
    return _odd(
        slow.sign,
        f"{slow.record}\n/ {_median(slow.record, scope)}\n> {slow.factor}\n"
        f"and {slow.record} > {slow.floor}\n{_enough(slow.record, scope)}\n"
        f"and on ({scope.engine}) {observed} * {timing.seconds('10m'):g} >= {slow.least}",
        "10m",
        f'{slow.description} {{{{ $value | printf "%.1f" }}}} times as long as those of the median '
        "replica of the same model, card and role.",
    )


def _smaller(scope: Scope) -> Alert:
    """Blocks are counted when the server starts: memory held by another process then is missing
    until the next start."""
    return _odd(
        "pool",
        f"{BLOCKS}\n/ {_median(BLOCKS, scope)}\n< {POOL_OF_MEDIAN}\n{_enough(BLOCKS, scope)}",
        None,
        f"{ENGINE} came up with {{{{ $value | humanizePercentage }}}} of the blocks of the median "
        "replica of the same model, card and role: it preempts first, and finds fewer prefixes.",
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
