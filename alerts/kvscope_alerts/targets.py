"""Alerts about targets: servers that do not answer, or come and go. And the watchdog."""

from kvscope_alerts.paging import paged_below
from kvscope_alerts.recordings import LAST_ANSWER, SIDECAR_SEEN
from kvscope_alerts.rule import COUNT, SERVER, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import JOB, MANY_TARGETS, MANY_TARGETS_SHARE, OUTAGES, SEEN
from kvscope_alerts.timing import Timing, seconds_of
from kvscope_monitoring.selectors import series

_UP = f'up{{job="{JOB}"}}'
_STARTED = f'process_start_time_seconds{{job="{JOB}"}}'


def target_groups(timing: Timing, scope: Scope, page_below: int) -> list[Group]:
    return [
        Group(
            name="kvscope-targets",
            rules=[
                *paged_below(_down(scope), scope, page_below),
                _blind(scope),
                _many_down(scope),
                _never_up(timing, scope),
                *paged_below(_restarts(timing, scope), scope, page_below),
                _absent(),
                _watchdog(),
            ],
        )
    ]


def _down(scope: Scope) -> Alert:
    """Only if it answered before: a pod that has yet to come up does not page. It fires as long as
    the target is remembered, whatever a shorter window would show."""
    age = f"time() - {LAST_ANSWER}"
    return Alert(
        name="KvscopeTargetDown",
        severity="critical",
        topic="target",
        expr=f"({_UP} == 0 unless on ({scope.server}) {SIDECAR_SEEN})\n"
        f"+ on ({scope.server}) group_left (model_name) ({age})",
        wait="5m",
        summary="An inference server no longer answers scrapes.",
        description=f"{SERVER} (job {{{{ $labels.job }}}}) answered Prometheus "
        "{{ $value | humanizeDuration }} ago and has not for five minutes, although a server "
        "answers even while it loads a model. Requests to its engines probably fail as well.",
        board="kvscope-overview",
        by=("model_name", "instance"),
    )


def _blind(scope: Scope) -> Alert:
    """A sidecar that does not answer says nothing about its server; if no other engine of the model
    is heard, KvscopeModelGone pages."""
    return Alert(
        name="KvscopeTargetDown",
        severity="warning",
        topic="target",
        expr=f"({_UP} == 0 and on ({scope.server}) {SIDECAR_SEEN})\n"
        f"+ on ({scope.server}) group_left (model_name) (time() - {LAST_ANSWER})",
        wait="5m",
        summary="A sidecar no longer answers scrapes, so nothing is known of its server.",
        description=f"The sidecar of {SERVER} (job {{{{ $labels.job }}}}) answered Prometheus "
        "{{ $value | humanizeDuration }} ago and has not for five minutes. Whether its server "
        "serves is not known from here: ask it. No other alert about it can fire.",
        board="kvscope-overview",
        by=("model_name", "instance"),
        labels={"sign": "sidecar"},
    )


def _many_down(scope: Scope) -> Alert:
    """One alert for a switch, a power feed, a network policy: the individual ones are silenced."""
    each = f"{_UP} == 0 and on ({scope.server}) {LAST_ANSWER}"
    down, known = f"count by ({scope.job}) ({each})", f"count by ({scope.job}) ({_UP})"
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
    )


def _never_up(timing: Timing, scope: Scope) -> Alert:
    """It begins to wait before KvscopeTargetDown has forgotten the server, so there is no gap."""
    wait = "30m"
    known = timing.seconds(SEEN) - (seconds_of(wait) if timing.divisor == 1 else 0)
    return Alert(
        name="KvscopeTargetNeverUp",
        severity="warning",
        topic="target",
        expr=f"{_UP} == 0\nunless on ({scope.server}) (time() - {LAST_ANSWER} < {known:g})",
        wait=wait,
        summary="An inference server has not come up.",
        description=f"Prometheus has had no answer from {SERVER} (job {{{{ $labels.job }}}}) for "
        "half an hour, nor in the week before: it does not start, or is not where service "
        "discovery says.",
        board="kvscope-overview",
        by=("instance",),
    )


def _restarts(timing: Timing, scope: Scope) -> Alert:
    """An engine ended three times within an hour; an end and a return are two changes.

    A restarted server is a different process; one in which only the engine does shows it in
    `kvscope_engine_ready`, one with a sidecar in `kvscope_source_up`. Not in `up`: a machine that
    is too busy to answer some scrapes would look like one whose server has ended.
    """
    window = timing.range("1h")
    starts = f"changes({_STARTED}[{window}])"
    ends = [
        f"floor((changes({series(name)}[{window}]) + 1) / 2)"
        for name in ("kvscope_engine_ready", "kvscope_source_up")
    ]
    outages = "\nor ".join(
        f"max by ({scope.host}) ({count}) >= {OUTAGES}" for count in (starts, *ends)
    )
    return Alert(
        name="KvscopeRestartLoop",
        severity="critical",
        topic="target",
        expr=f"({outages})\n+ on ({scope.server}) group_left (model_name) 0 * {LAST_ANSWER}",
        wait="1m",
        keep="15m",
        summary="An engine starts again and again.",
        description=f"An engine of {SERVER} has ended {COUNT} times in the last hour: it starts, "
        "serves for a while at best, and ends.",
        board="kvscope-overview",
        by=("model_name", "instance"),
    )


def _absent() -> Alert:
    return Alert(
        name="KvscopeTargetAbsent",
        severity="warning",
        topic="target",
        expr=f"absent({_UP})",
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
