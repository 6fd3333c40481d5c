"""Alerts that compare a model with itself at the same hour of yesterday and of the week before.

What hits every replica alike makes no outlier: a router that sends nothing, an upgrade that decodes
more slowly, answers for which clients do not wait.
"""

from kvscope_alerts.recordings import (
    GIVEN_UP_SHARE,
    GIVEN_UP_TOTAL,
    MODEL_ITL_MEAN,
    MODEL_TOKENS,
)
from kvscope_alerts.rule import MODEL, SERVERS, Alert, Group, Severity, Topic
from kvscope_alerts.scope import Scope
from kvscope_alerts.slo import ERRORS, judged
from kvscope_alerts.thresholds import (
    FELL_TO,
    FELL_WAS,
    GIVE_UP_FACTOR,
    GIVE_UP_MIN,
    GIVE_UP_SHARE,
    SLOWER_FACTOR,
    SLOWER_MIN_TOKENS,
    SLOWER_SECONDS,
)
from kvscope_alerts.timing import Timing


def before_groups(timing: Timing, scope: Scope) -> list[Group]:
    rules = [_traffic_fell(timing, scope), _slower(timing, scope), _given_up(timing, scope)]
    return [Group(name="kvscope-before", rules=[*rules], interval="1m")]


def _then(record: str, window: str, ago: str, timing: Timing) -> str:
    return f"avg_over_time({record}[{timing.range(window)}] offset {timing.range(ago)})"


def _alert(
    name: str, severity: Severity, topic: Topic, expr: str, wait: str, summary: str, said: str
) -> Alert:
    return Alert(
        name=name,
        severity=severity,
        topic=topic,
        expr=expr,
        wait=wait,
        keep="5m",
        summary=summary,
        description=said,
        board="kvscope-overview",
        by=("model_name",),
        servers=SERVERS,
    )


def _traffic_fell(timing: Timing, scope: Scope) -> Alert:
    """A gateway, router or picker that sends nothing leaves no error and no late token. Both days
    had to have traffic, so the end of a single batch does not count. A model that is younger than
    a week is compared with yesterday alone."""
    rate, on = judged(ERRORS), f"on ({scope.model})"
    now = f"avg_over_time({rate}[{timing.range('15m')}])"
    day, week = (_then(rate, "1h", ago, timing) for ago in ("1d", "7d"))
    usual = f"(({week}) or {on} ({day}))"
    least = FELL_WAS / 3600
    return _alert(
        "KvscopeTrafficFell",
        "critical",
        "traffic",
        f"{now}\n/ {on} ({day} > {least:.4g})\n< {FELL_TO}\n"
        f"and {on} ({now} < {on} {FELL_TO} * {usual})\nand {on} {usual} > {least:.4g}",
        "10m",
        "A model gets almost no requests, unlike yesterday and last week at this hour.",
        f"{MODEL} gets {{{{ $value | humanizePercentage }}}} of the requests of the same hour of "
        "yesterday, and as few as that of last week's, although its engines report. Look at what "
        "stands before them: the gateway, the router, the endpoint picker.",
    )


def _slower(timing: Timing, scope: Scope) -> Alert:
    """Outliers compare with the median, and a promise of two tokens a second is kept by a model
    that decodes five times as slowly as it used to."""
    on = f"on ({scope.model})"
    slower = "\nor ".join(
        f"({MODEL_ITL_MEAN} / {on} ({_then(MODEL_ITL_MEAN, '1h', ago, timing)}"
        f" and {on} {_then(MODEL_TOKENS, '1h', ago, timing)} > {SLOWER_MIN_TOKENS / 3600:.4g})"
        f" > {SLOWER_FACTOR})"
        for ago in ("1d", "7d")
    )
    return _alert(
        "KvscopeFleetSlower",
        "critical",
        "slo-itl",
        f"({slower})\nand {on} {MODEL_ITL_MEAN} > {SLOWER_SECONDS}\n"
        f"and {on} {MODEL_TOKENS} > {SLOWER_MIN_TOKENS / 3600:.4g}",
        "15m",
        "All replicas of a model decode several times more slowly than a day or a week ago.",
        f'Between two tokens {MODEL} takes {{{{ $value | printf "%.1f" }}}} times as long as at '
        "this hour of yesterday, or of the week before, on the mean of all its replicas: look for "
        "what changed for all of them, a version, a flag, a driver, the prompts.",
    )


def _given_up(timing: Timing, scope: Scope) -> Alert:
    """Clients that leave are in no objective: the server failed none of their requests."""
    on = f"on ({scope.model})"
    usual = _then(GIVEN_UP_SHARE, "1h", "1d", timing)
    return _alert(
        "KvscopeClientsGiveUp",
        "warning",
        "traffic",
        f"{GIVEN_UP_SHARE} > {GIVE_UP_SHARE}\n"
        f"and {on} {GIVEN_UP_TOTAL} > {GIVE_UP_MIN}\n"
        f"unless {on} ({GIVEN_UP_SHARE} <= {on} {GIVE_UP_FACTOR} * {usual})",
        "10m",
        "Clients of a model leave before their answers end, more than yesterday.",
        f"{{{{ $value | humanizePercentage }}}} of the requests to {MODEL} were given up by their "
        "clients within a quarter of an hour, "
        f"more than {GIVE_UP_FACTOR} times the share of this hour of yesterday, where it is known.",
    )
