"""Alerts about a server's API responses, which the engines behind it do not see."""

from kvscope_alerts.paging import graded
from kvscope_alerts.rule import SERVER, Alert, Group, Record
from kvscope_alerts.scope import Scope
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.objectives import BURN_MIN_BAD, BURN_WARN_BAD, FAILING_SHARE
from kvscope_monitoring.selectors import series

_FAILURES = "server:kvscope_api_failures:rate"


def api_groups(timing: Timing, scope: Scope) -> list[Group]:
    by = f"by ({scope.server}, model_name)"
    records = [
        Record(record=_FAILURES + window, expr=formulas.api_failures(timing.range(window), by))
        for window in ("10m", "5m")
    ]
    return [
        Group(name="kvscope-api.rules", rules=[*records]),
        Group(name="kvscope-api", rules=[*_fails(timing, by)]),
    ]


def _fails(timing: Timing, by: str) -> tuple[Alert, Alert]:
    """It is ongoing, and the server's page can be read, but for a lost scrape: a server that has
    ended has its own alert."""
    responding = timing.last(series("kvscope_api_responses_total"), within="1m")
    failures, count = f"{_FAILURES}10m", f"{_FAILURES}10m * {timing.seconds('10m'):g}"
    responses = formulas.api_responses(timing.range("10m"), by)
    alert = Alert(
        name="KvscopeServerFails",
        severity="critical",
        topic="slo-errors",
        expr=f"{formulas.share(failures, responses)}\n> {FAILING_SHARE:.2f}\n"
        f"and {_FAILURES}5m > 0\n"
        f"and count {by} ({responding}) > 0\n"
        f"and {count} >= {BURN_WARN_BAD}",
        wait="2m",
        keep="5m",  # longer than the model's budget burns fast, which would be a second page
        summary="An inference server answers requests with 5xx.",
        description=f"{SERVER} answered {{{{ $value | humanizePercentage }}}} of the requests of "
        "the last ten minutes with a status of 500 or above, and neither did its engine fail them "
        "nor were they refused for a full queue.",
        board="kvscope-overview",
        by=("instance", "model_name"),
    )
    many = f"({count} >= {BURN_MIN_BAD})"
    return graded(alert, f"and {many}", f"unless {many}")
