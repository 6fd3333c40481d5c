"""Decides whether trouble of one server pages: one failed replica of many is a ticket, one of two
is not. Each case has a name of its own, so that a name has one severity."""

from collections.abc import Iterable
from dataclasses import replace

from kvscope_alerts.recordings import REPLICAS
from kvscope_alerts.rule import Alert
from kvscope_alerts.scope import Scope


def paged_below(
    alerts: Iterable[Alert], scope: Scope, replicas: int, name: str, summary: str
) -> list[Alert]:
    """Each critical alert where fewer replicas of the server's model are heard, and elsewhere a
    warning of that name and summary. The model of a server that was never heard is unknown, and so
    are its other replicas."""
    enough = f"on ({scope.server}) {REPLICAS} >= {replicas}"
    alerts = list(alerts)
    critical = [replace(each, expr=f"({each.expr})\nunless {enough}") for each in alerts]
    lesser = [
        replace(
            each,
            name=name,
            summary=summary,
            severity="warning",
            expr=f"({each.expr})\nand {enough}",
        )
        for each in alerts
    ]
    return [*critical, *lesser]
