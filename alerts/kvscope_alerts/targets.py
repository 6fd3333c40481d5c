"""Alerts about targets: those that do not answer for a common reason, or tell nothing. And the
watchdog."""

from kvscope_alerts.engine_down import UP
from kvscope_alerts.recordings import LAST_ANSWER, SIDECAR_SEEN
from kvscope_alerts.rule import SERVER, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import MANY_TARGETS, MANY_TARGETS_SHARE
from kvscope_monitoring.identity import clause


def target_groups(scope: Scope) -> list[Group]:
    apart = [label for label in scope.place if label != "namespace"]
    many = [_many_down(scope, "namespace" if apart != [*scope.place] else "place", scope.place)]
    if apart != [*scope.place]:
        many.append(_many_down(scope, "cluster", tuple(apart)))
    return [
        Group(
            name="kvscope-targets",
            rules=[*many, _sidecar_down(scope), _absent(), _watchdog()],
        )
    ]


def _sidecar_down(scope: Scope) -> Alert:
    """It says nothing about its server; if no other engine of the model is heard, KvscopeModelGone
    pages."""
    return Alert(
        name="KvscopeSidecarDown",
        severity="warning",
        topic="target",
        expr=f"({UP} == 0 and on ({scope.server}) {SIDECAR_SEEN})\n"
        f"+ on ({scope.server}) group_left (model_name) (time() - {LAST_ANSWER})",
        wait="5m",
        summary="A sidecar no longer answers scrapes, so nothing is known of its server.",
        description=f"The sidecar of {SERVER} (job {{{{ $labels.job }}}}) answered Prometheus "
        "{{ $value | humanizeDuration }} ago and has not for five minutes. Whether its server "
        "serves is not known from here: ask it. No other alert about it can fire.",
        board="kvscope-overview",
        by=("model_name", "instance"),
    )


def _many_down(scope: Scope, sign: str, place: tuple[str, ...]) -> Alert:
    """One alert for a switch, a power feed, a network policy: the individual ones are silenced."""
    each = f"{UP} == 0 and on ({scope.server}) {LAST_ANSWER}"
    by = clause(*place, "job")
    down, known = f"count by ({by}) ({each})", f"count by ({by}) ({UP})"
    return Alert(
        name="KvscopeManyTargetsDown",
        severity="critical",
        topic="target",
        expr=f"{down}\n/ {known} > {MANY_TARGETS_SHARE}\nand {down} >= {MANY_TARGETS}",
        wait="5m",
        summary="Many inference servers no longer answer scrapes.",
        description="{{ $value | humanizePercentage }} of the targets of job {{ $labels.job }}"
        "{{ with $labels.namespace }} in {{ . }}{{ end }}{{ with $labels.cluster }} ({{ . }})"
        "{{ end }} have not answered Prometheus for five minutes, and did before: look for what "
        "they share.",
        board="kvscope-overview",
        by=(),
        labels={"sign": sign},
    )


def _absent() -> Alert:
    return Alert(
        name="KvscopeTargetAbsent",
        severity="warning",
        topic="target",
        expr=f"absent({UP})",
        wait="5m",
        summary="Prometheus has no kvscope target to scrape.",
        description="There has been no target of job {{ $labels.job }} for five minutes: nothing "
        "watches the inference servers, and no other alert about them can fire.",
        board="kvscope-overview",
        by=(),
    )


def _watchdog() -> Alert:
    """Always fires. Its receiver must raise the alarm when it stops arriving."""
    return Alert(
        name="KvscopeWatchdog",
        severity="none",
        topic="watchdog",
        expr="vector(1)",
        wait="0s",
        summary="Alerts are evaluated and delivered.",
        description="This alert fires always: if it stops arriving, Prometheus, Alertmanager or "
        "the link between them has failed, and no other alert arrives either.",
        board="kvscope-overview",
        by=(),
    )
