"""Alerts about targets: servers that do not answer, or come and go. And the watchdog."""

from alerts.rule import COUNT, Alert, Group
from alerts.scope import Scope
from alerts.thresholds import JOB, MANY_TARGETS, MANY_TARGETS_SHARE, OUTAGES
from alerts.timing import Timing
from monitoring.selectors import series

_UP = f'up{{job="{JOB}"}}'
_STARTED = f'process_start_time_seconds{{job="{JOB}"}}'


def target_groups(timing: Timing, scope: Scope) -> list[Group]:
    return [
        Group(
            name="kvscope-targets",
            rules=[
                _down(timing),
                _many_down(timing, scope),
                _never_up(timing),
                _restarts(timing, scope),
                _absent(),
                _watchdog(),
            ],
        )
    ]


def _down(timing: Timing) -> Alert:
    """Only where it answered before: a pod that has yet to come up pages nobody."""
    return Alert(
        name="KvscopeTargetDown",
        severity="critical",
        topic="target",
        expr=_silent(timing, before=1),
        wait="5m",
        summary="An inference server does not answer scrapes any more.",
        description="Prometheus has had no answer from {{ $labels.instance }} (job "
        "{{ $labels.job }}) for five minutes, although a server answers even while it loads a "
        "model. Requests to its engines probably fail as well.",
        board="kvscope-overview",
        by=("instance",),
    )


def _silent(timing: Timing, before: int, joint: str = "\n") -> str:
    """Targets that do not answer. before: 1 if they did within six hours, 0 if not."""
    return f"{_UP} == 0{joint}and max_over_time({_UP}[{timing.range('6h')}]) == {before}"


def _many_down(timing: Timing, scope: Scope) -> Alert:
    """One alert for a switch, a power feed, a network policy: the single ones are silenced."""
    each = _silent(timing, before=1, joint=" ")
    down, known = f"count by ({scope.job}) ({each})", f"count by ({scope.job}) ({_UP})"
    return Alert(
        name="KvscopeManyTargetsDown",
        severity="critical",
        topic="target",
        expr=f"{down}\n/ {known} > {MANY_TARGETS_SHARE}\nand {down} >= {MANY_TARGETS}",
        wait="5m",
        summary="Many inference servers do not answer scrapes any more.",
        description="{{ $value | humanizePercentage }} of the targets of job {{ $labels.job }}"
        "{{ with $labels.namespace }} in {{ . }}{{ end }}{{ with $labels.cluster }} ({{ . }})"
        "{{ end }} have not answered Prometheus for five minutes, and did before: look for what "
        "they share.",
        board="kvscope-overview",
        by=(),
    )


def _never_up(timing: Timing) -> Alert:
    return Alert(
        name="KvscopeTargetNeverUp",
        severity="warning",
        topic="target",
        expr=_silent(timing, before=0),
        wait="30m",
        summary="An inference server has not come up.",
        description="Prometheus has had no answer from {{ $labels.instance }} (job "
        "{{ $labels.job }}) for half an hour, nor in the six hours before: it does not start, or "
        "is not where service discovery says.",
        board="kvscope-overview",
        by=("instance",),
    )


def _restarts(timing: Timing, scope: Scope) -> Alert:
    """Three ends of an engine within an hour; an end and a return are two changes.

    A server that starts anew is another process; one in which only the engine does shows it in
    `kvscope_engine_ready`, one with a sidecar in `kvscope_source_up`. Not in `up`: a machine that
    is too busy to answer some scrapes would look like one whose server ends.
    """
    window = timing.range("1h")
    starts = f"changes({_STARTED}[{window}])"
    ends = [
        f"floor((changes({series(name)}[{window}]) + 1) / 2)"
        for name in ("kvscope_engine_ready", "kvscope_source_up")
    ]
    outages = "\nor ".join(
        f"max by ({scope.server}) ({count}) >= {OUTAGES}" for count in (starts, *ends)
    )
    return Alert(
        name="KvscopeRestartLoop",
        severity="critical",
        topic="target",
        expr=outages,
        wait="1m",
        keep="15m",
        summary="An engine starts again and again.",
        description=f"An engine of {{{{ $labels.instance }}}} has ended {COUNT} times in the last "
        "hour: it starts, serves for a while at best, and ends.",
        board="kvscope-overview",
        by=("instance",),
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
    """Fires always. Who gets it must raise the alarm when it stays away."""
    return Alert(
        name="KvscopeWatchdog",
        severity="none",
        topic="watchdog",
        expr="vector(1)",
        wait="0s",
        summary="Alerts are evaluated and delivered.",
        description="This alert fires always: where it stays away, Prometheus, Alertmanager or the "
        "way between them has failed, and no other alert arrives either.",
        board="kvscope-overview",
        by=(),
    )
