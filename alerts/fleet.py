"""Alerts about replicas among replicas: one that is worse than the others, ones that are gone."""

from alerts.recordings import ENGINES, ERROR_SHARE_10M, ITL_MEAN_10M, TTFT_MEAN_10M
from alerts.rule import COUNT, ENGINE, MODEL, Alert, Group
from alerts.scope import Scope
from alerts.thresholds import (
    BURN_MIN_BAD,
    ERROR_OUTLIER_SHARE,
    ITL_OUTLIER_FACTOR,
    ITL_OUTLIER_SECONDS,
    OUTLIER_MIN_FIRST_TOKENS,
    OUTLIER_MIN_TOKENS,
    OUTLIER_REPLICAS,
    TTFT_OUTLIER_FACTOR,
    TTFT_OUTLIER_SECONDS,
)
from alerts.timing import Timing
from monitoring import formulas


def fleet_groups(timing: Timing, scope: Scope) -> list[Group]:
    return [
        Group(
            name="kvscope-fleet",
            rules=[
                _fewer(timing),
                _errors(timing, scope),
                _first_tokens(timing, scope),
                _token_gaps(timing, scope),
            ],
        )
    ]


def _fewer(timing: Timing) -> Alert:
    """A pod that was deleted leaves no `up`. Longer than a roll-out loads a large model, so that a
    replica that is being replaced is no loss."""
    before = f"{ENGINES} offset {timing.range('1h')}"
    return Alert(
        name="KvscopeEnginesFewer",
        severity="warning",
        topic="fleet",
        expr=f"({before})\n- ({ENGINES} or 0 * ({before})) > 0",
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


def _errors(timing: Timing, scope: Scope) -> Alert:
    """Critical: a replica that fails at once is the idlest, and a load balancer sends it more."""
    window = timing.range("10m")
    failed = formulas.failed_requests(window, f"by ({scope.engine})")
    return Alert(
        name="KvscopeErrorOutlier",
        severity="critical",
        topic="slo-errors",
        expr=f"{ERROR_SHARE_10M}\n- {_median(ERROR_SHARE_10M, scope)}\n> {ERROR_OUTLIER_SHARE}\n"
        f"{_enough(ERROR_SHARE_10M, scope)}\n"
        f"and {failed} * {timing.seconds('10m'):g} >= {BURN_MIN_BAD}",
        wait="3m",
        keep="10m",
        summary="One replica fails requests that the others serve.",
        description=f"{ENGINE} fails {{{{ $value | humanizePercentage }}}} more of its requests "
        "than the median of the model's replicas.",
        board="kvscope-overview",
    )


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
