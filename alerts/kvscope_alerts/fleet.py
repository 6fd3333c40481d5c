"""Alerts that compare replicas: one that is worse than the others, or some that are gone."""

import json
from collections.abc import Callable, Collection

from kvscope_alerts.fleet_cache import fleet_cache_alerts
from kvscope_alerts.paging import graded
from kvscope_alerts.recordings import (
    ENGINES,
    ENGINES_SEEN,
    ERROR_SHARE_10M,
    ITL_MEAN_10M,
    LAST_ANSWER,
    TTFT_MEAN_10M,
)
from kvscope_alerts.rule import COUNT, ENGINE, MODEL, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import (
    ERROR_OUTLIER_MIN,
    ERROR_OUTLIER_PAGE,
    ERROR_OUTLIER_SHARE,
    ITL_OUTLIER_FACTOR,
    ITL_OUTLIER_SECONDS,
    JOB,
    OUTLIER_MIN_FIRST_TOKENS,
    OUTLIER_MIN_TOKENS,
    OUTLIER_REPLICAS,
    SEEN,
    TTFT_OUTLIER_FACTOR,
    TTFT_OUTLIER_SECONDS,
)
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import series


def fleet_groups(timing: Timing, scope: Scope, to_zero: Collection[str]) -> list[Group]:
    """to_zero: models that may have fewer engines, or none, at any time."""
    return [
        Group(
            name="kvscope-fleet",
            rules=[
                _gone(scope, to_zero),
                _fewer(timing, scope, to_zero),
                *_errors(timing, scope),
                _first_tokens(timing, scope),
                _token_gaps(timing, scope),
                *fleet_cache_alerts(timing, scope),
            ],
        )
    ]


def _without(record: str, models: Collection[str]) -> str:
    if not models:
        return record
    return f"{record}{{{','.join(f'model_name!={json.dumps(model)}' for model in models)}}}"


def _relabelled(before: Callable[[str], str], scope: Scope) -> str:
    """Models that only gained a place label, such as `cluster`: under the old labels they are
    gone."""
    clauses = []
    for label in scope.place:
        without, present = f'{label}=""', f'{label}!=""'
        clauses.append(
            f"\nunless on ({scope.model}) (\n"
            f"  {before(without)} and on (model_name) {ENGINES}{{{present}}}\n)"
        )
    return "".join(clauses)


def _matching(record: str, matcher: str) -> str:
    head, brace, rest = record.partition("{")
    return f"{head}{{{matcher},{rest}" if brace else f"{head}{{{matcher}}}"


def _gone(scope: Scope, to_zero: Collection[str]) -> Alert:
    seen = _without(ENGINES_SEEN, to_zero)
    renamed = _relabelled(lambda matcher: _matching(seen, matcher), scope)
    ready = series("kvscope_server_state", state="ready")
    return Alert(
        name="KvscopeModelGone",
        severity="critical",
        topic="fleet",
        expr=f"{seen}\nunless on ({scope.model}) {ENGINES}\n"
        # no engine is heard, but its server answers: only its sockets have vanished
        f"unless on ({scope.model}) (\n  {LAST_ANSWER} and on ({scope.server}) {ready} == 1\n)"
        f"{renamed}",
        wait="5m",
        summary="No engine serves a model any more.",
        description=f"{MODEL} has had up to {COUNT} engines within the last {SEEN}, and none has "
        "been heard for five minutes: unless only their sidecars have failed, requests to it fail.",
        board="kvscope-overview",
        by=("model_name",),
    )


def _fewer(timing: Timing, scope: Scope, to_zero: Collection[str]) -> Alert:
    """A pod that was deleted leaves no `up`. Longer than a large model takes to load in a roll-out,
    so that a replica that is being replaced does not count as lost.

    A server that has not come up yet, so that its model is unknown, may be the missing one: each
    explains one engine, and no more.
    """
    ago, engines = timing.range("1h"), _without(ENGINES, to_zero)
    before = f"({engines} offset {ago})"
    renamed = _relabelled(lambda matcher: f"{_matching(engines, matcher)} offset {ago}", scope)
    state = series("kvscope_server_state", state="ready")
    up, known = f'up{{job="{JOB}"}}', f'{LAST_ANSWER}{{model_name!=""}}'
    silent = f"({state} == 0 or {up} == 0)\n    unless on ({scope.server}) {known}"
    place = ", ".join(scope.place)
    unknown = f"count by ({place}) (\n    {silent}\n  )"
    lost = f"({before} - ({engines} or 0 * {before}) > 0)"
    return Alert(
        name="KvscopeEnginesFewer",
        severity="warning",
        topic="fleet",
        expr=f"(\n  {lost}\n  > on ({place}) group_left () {unknown}\n"
        f"  or ({lost} unless on ({place}) {unknown})\n){renamed}",
        wait="30m",
        summary="Fewer engines serve a model than an hour ago.",
        description=f"{MODEL} has had {COUNT} engines fewer than an hour before, for half an hour: "
        "they are gone, and the others have their load.",
        board="kvscope-overview",
        by=("model_name",),
    )


def _median(record: str, scope: Scope) -> str:
    return f"on ({scope.model}) group_left () quantile by ({scope.model}) (0.5, {record})"


def _enough(record: str, scope: Scope) -> str:
    """A median of two replicas lies between them."""
    counted = f"count by ({scope.model}) ({record}) >= {OUTLIER_REPLICAS}"
    return f"and on ({scope.model}) ({counted})"


def _errors(timing: Timing, scope: Scope) -> tuple[Alert, Alert]:
    """Critical: a replica that fails immediately looks idle, and a load balancer sends it more."""
    window = timing.range("10m")
    failed = formulas.failed_by_engine(window, f"by ({scope.engine})")
    count = f"{failed} * {timing.seconds('10m'):g}"
    alert = Alert(
        name="KvscopeErrorOutlier",
        severity="critical",
        topic="slo-errors",
        expr=f"{ERROR_SHARE_10M}\n- {_median(ERROR_SHARE_10M, scope)}\n> {ERROR_OUTLIER_SHARE}\n"
        f"{_enough(ERROR_SHARE_10M, scope)}\nand {count} >= {ERROR_OUTLIER_MIN}",
        wait="3m",
        keep="10m",
        summary="One replica fails requests that the others serve.",
        description=f"{ENGINE} fails {{{{ $value | humanizePercentage }}}} more of its requests "
        "than the median of the model's replicas.",
        board="kvscope-service-levels",
    )
    many = f"({count} >= {ERROR_OUTLIER_PAGE})"
    return graded(alert, f"and {many}", f"unless {many}")


def _slow(record: str, scope: Scope, factor: float, floor: float, enough_of_it: str) -> str:
    return (
        f"{record}\n/ {_median(record, scope)}\n> {factor}\nand {record} > {floor}\n"
        f"{_enough(record, scope)}\nand {enough_of_it}"
    )


def _first_tokens(timing: Timing, scope: Scope) -> Alert:
    window = timing.range("10m")
    count = f"{formulas.first_tokens(window, f'by ({scope.engine})')} * {timing.seconds('10m'):g}"
    return Alert(
        name="KvscopeTtftOutlier",
        severity="warning",
        topic="slo-ttft",
        expr=_slow(
            TTFT_MEAN_10M,
            scope,
            TTFT_OUTLIER_FACTOR,
            TTFT_OUTLIER_SECONDS,
            f"{count} >= {OUTLIER_MIN_FIRST_TOKENS}",
        ),
        wait="10m",
        keep="10m",
        summary="The first tokens of one replica come much later than those of the others.",
        description=f'First tokens of {ENGINE} take {{{{ $value | printf "%.1f" }}}} times as '
        "long as those of the median replica of the model.",
        board="kvscope-overview",
    )


def _token_gaps(timing: Timing, scope: Scope) -> Alert:
    window = timing.range("10m")
    count = f"{formulas.token_gaps(window, f'by ({scope.engine})')} * {timing.seconds('10m'):g}"
    return Alert(
        name="KvscopeItlOutlier",
        severity="warning",
        topic="slo-itl",
        expr=_slow(
            ITL_MEAN_10M,
            scope,
            ITL_OUTLIER_FACTOR,
            ITL_OUTLIER_SECONDS,
            f"{count} >= {OUTLIER_MIN_TOKENS}",
        ),
        wait="10m",
        keep="10m",
        summary="The tokens of one replica come much more slowly than those of the others.",
        description=f'Between two tokens {ENGINE} takes {{{{ $value | printf "%.1f" }}}} times as '
        "long as the median replica of the model.",
        board="kvscope-overview",
    )
