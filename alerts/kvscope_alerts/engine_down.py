"""Alerts about an engine that does not serve: it refuses, is silent, has ended or restarts.

The signs differ by what is left to tell of it: the engine itself, its sidecar, its target, or
kube-state-metrics.
"""

from kvscope_alerts.paging import paged_below
from kvscope_alerts.recordings import LAST_ANSWER, READY_SEEN, SIDECAR_SEEN
from kvscope_alerts.rule import COUNT, ENGINE, SERVER, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.server_state import in_state, silent
from kvscope_alerts.thresholds import JOB, OUTAGES
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import series

UP = f'up{{job="{JOB}"}}'
_STARTED = f'process_start_time_seconds{{job="{JOB}"}}'
DOWN = "KvscopeReplicaDown"
DOWN_SUMMARY = "A replica of a model is gone or does not serve; others have its load."


def engine_down_groups(timing: Timing, scope: Scope, page_below: int) -> list[Group]:
    signs = [
        _refuses(timing),
        _silent(timing, scope),
        _ended(timing, scope),
        _unanswered(scope),
        _pod_not_ready(scope),
        _restarts(timing, scope),
    ]
    rules = paged_below(signs, scope, page_below, DOWN, DOWN_SUMMARY)
    return [Group(name="kvscope-engine-down", rules=[*rules])]


def _sign(
    sign: str,
    expr: str,
    wait: str,
    description: str,
    keep: str | None = None,
    by: tuple[str, ...] = ("model_name", "instance"),
) -> Alert:
    return Alert(
        name="KvscopeEngineDown",
        severity="critical",
        topic="engine",
        expr=expr,
        wait=wait,
        keep=keep,
        summary="An engine is down, and few others of its model are left.",
        description=description,
        board="kvscope-overview",
        by=by,
        labels={"sign": sign},
    )


def _named(expr: str, scope: Scope, value: str = f"0 * {LAST_ANSWER}") -> str:
    """Servers, with the model that each reported last."""
    return f"({expr})\n+ on ({scope.server}) group_left (model_name) ({value})"


def _refuses(timing: Timing) -> Alert:
    refused = series("kvscope_requests_rejected_total", reason="engine_dead")
    return _sign(
        "refuses",
        f"sum without (reason) (increase({refused}[{timing.range('5m')}])) > 0",
        "10s",
        f"The step loop of {ENGINE} has ended with an exception: about {COUNT} requests were "
        "refused in the last five minutes, and no other will be served until the engine is "
        "restarted.",
        by=("instance", "model_name", "engine"),
    )


def _silent(timing: Timing, scope: Scope) -> Alert:
    """It hangs where no Python runs, or its process has ended, while other parts of its server go
    on. Engines that their server's own page shows at work are only cut off from us."""
    first_tokens = series("kvscope_time_to_first_token_seconds_count")
    delivers = f"increase({first_tokens}[{timing.range('1m')}]) > 0"
    return _sign(
        "silent",
        f"topk by ({scope.engine}) (1, {silent(timing)})\n"
        f"unless on ({scope.engine}) ({formulas.in_engine()} > 0)\n"
        f"unless on ({scope.engine}) ({delivers})",
        "10s",
        '{{ if eq $labels.part "front_end" }}An API server{{ else if eq $labels.part "worker" }}'
        f"A worker{{{{ else }}}}The scheduler{{{{ end }}}} of {ENGINE} has not been heard for "
        "{{ $value | humanizeDuration }}, although it reports every second even while it idles, "
        "and the engine was ready before. It hangs or has ended, and the engine serves nothing "
        "until it is restarted.",
        keep="2m",  # requests that come to it now are of KvscopeEngineStalled, in a minute
        by=("instance", "model_name", "engine"),
    )


def _ended(timing: Timing, scope: Scope) -> Alert:
    gone = f"{in_state('gone', timing)} and on ({scope.server}) {READY_SEEN} == 1"
    return _sign(
        "ended",
        _named(gone, scope),
        "5m",
        f"{SERVER} was ready and has ended, in an orderly way or not; its exporter has heard "
        "nothing of it for five minutes. It serves nothing until it is started again.",
    )


def _unanswered(scope: Scope) -> Alert:
    """The exporter and the engine are one process. Only if it answered before: a pod that has yet
    to come up does not page. It fires as long as the target is remembered."""
    return _sign(
        "unanswered",
        _named(f"{UP} == 0 unless on ({scope.server}) {SIDECAR_SEEN}", scope, _AGE),
        "5m",
        f"{SERVER} (job {{{{ $labels.job }}}}) answered Prometheus {{{{ $value | "
        "humanizeDuration }} ago and has not for five minutes, although a server answers even "
        "while it loads a model. Requests to its engines probably fail as well.",
    )


_AGE = f"time() - {LAST_ANSWER}"


_PLACE = "cluster, namespace, pod"
_READY = 'kube_pod_container_status_ready{container!~"kvscope.*"}'


def blind(scope: Scope) -> str:
    """Servers whose container is ready, says kube-state-metrics, and whose sidecar is silent."""
    ready = f"on ({_PLACE}) (min by ({_PLACE}) ({_READY}) == 1)"
    return f"{UP} == 0 and on ({scope.server}) {SIDECAR_SEEN} and {ready}"


def _pod_not_ready(scope: Scope) -> Alert:
    """A sidecar that does not answer says nothing about its server; kube-state-metrics does."""
    silent_sidecar = f"{UP} == 0 and on ({scope.server}) {SIDECAR_SEEN}"
    return _sign(
        "pod",
        _named(
            f"{silent_sidecar} and on ({_PLACE}) (max by ({_PLACE}) ({_READY}) == 0)", scope, _AGE
        ),
        "5m",
        f"The pod of {SERVER} is not ready, and its sidecar answered Prometheus {{{{ $value | "
        "humanizeDuration }} ago: its server, or its node, is gone.",
    )


def _restarts(timing: Timing, scope: Scope) -> Alert:
    """An engine ended three times within an hour.

    A restarted server is a different process; one in which only the engine does shows it in
    `kvscope_engine_ready`, one with a sidecar in `kvscope_source_up`. Not in `up`: a machine that
    is too busy to answer some scrapes would look like one whose server has ended. `resets`, since
    VictoriaMetrics' `changes` counts the first sample as well.
    """
    window = timing.range("1h")
    resolution = "30s" if timing.divisor == 1 else "1s"
    counts = [
        f"resets((-{_STARTED})[{window}:{resolution}])",
        *(
            f"resets({series(name)}[{window}])"
            for name in ("kvscope_engine_ready", "kvscope_source_up")
        ),
    ]
    ends = "\nor ".join(f"max by ({scope.host}) ({count}) >= {OUTAGES}" for count in counts)
    return _sign(
        "restarts",
        _named(ends, scope),
        "1m",
        f"An engine of {SERVER} has ended {COUNT} times in the last hour: it starts, serves for a "
        "while at best, and ends.",
        keep="15m",
    )
