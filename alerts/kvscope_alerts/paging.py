"""Decides whether an alert pages: one failed replica of many is a ticket, one of two is not."""

from dataclasses import replace

from kvscope_alerts.recordings import REPLICAS
from kvscope_alerts.rule import Alert
from kvscope_alerts.scope import Scope


def paged_below(alert: Alert, scope: Scope, replicas: int) -> tuple[Alert, Alert]:
    """The critical alert if fewer replicas of the server's model are heard, else a warning. The
    model of a server that was never heard is unknown, and so are its other replicas."""
    enough = f"on ({scope.server}) {REPLICAS} >= {replicas}"
    return graded(alert, f"unless {enough}", f"and {enough}")


def graded(alert: Alert, critical: str, warning: str) -> tuple[Alert, Alert]:
    """Two rules of one alert. critical, warning: suffixes of its expression."""
    whole = f"({alert.expr})"
    return (
        replace(alert, expr=f"{whole}\n{critical}", severity="critical"),
        replace(alert, expr=f"{whole}\n{warning}", severity="warning"),
    )
