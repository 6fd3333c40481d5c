"""Alerts about the engine and the exporter itself."""

from kvscope_alerts.rule import COUNT, ENGINE, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.server_state import silent
from kvscope_alerts.thresholds import NOT_ADMITTED, STARVED_FACTOR, STARVED_SECONDS
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import series
from kvscope_monitoring.thresholds import STEP_AGE_SECONDS


def engine_groups(timing: Timing, scope: Scope) -> list[Group]:
    return [
        Group(
            name="kvscope-engine",
            rules=[
                _stalled(timing, scope),
                *_dead(timing, scope),
                _queue_stuck(timing, scope),
                _not_admitting(timing),
                _starved(timing, scope),
            ],
        ),
        Group(
            name="kvscope-exporter",
            rules=[
                _source_down(timing, scope),
                _observer_stopped(),
                _dropped(timing),
                _folds(),
                _page_incomplete(timing),
                _not_reloaded(),
                _imbalance(),
            ],
        ),
    ]


def _stalled(timing: Timing, scope: Scope) -> Alert:
    windows = timing.range("1m"), timing.range("5s")
    stalled = formulas.stalled(*windows, same=scope.engine, last=timing.last)
    return Alert(
        name="KvscopeEngineStalled",
        severity="critical",
        topic="engine",
        expr=f"({stalled})\n> {timing.seconds(f'{STEP_AGE_SECONDS}s'):g}",
        wait="15s",
        summary="An engine has requests and makes no steps.",
        description=f"{ENGINE} has requests but has completed no step for "
        "{{ $value | humanizeDuration }}: its requests hang.",
        board="kvscope-overview",
    )


def _dead(timing: Timing, scope: Scope) -> tuple[Alert, ...]:
    """A dead engine refuses requests, or is silent: it hangs where no Python runs, or its process
    has ended, while other parts of its server go on."""
    refused = series("kvscope_requests_rejected_total", reason="engine_dead")
    summary = "An engine has failed and no longer serves requests."
    return (
        Alert(
            name="KvscopeEngineDead",
            severity="critical",
            topic="engine",
            expr=f"sum without (reason) (increase({refused}[{timing.range('5m')}])) > 0",
            wait="10s",
            summary=summary,
            description=f"The step loop of {ENGINE} has ended with an exception: about "
            f"{COUNT} requests were refused in the last five minutes, and no other "
            "will be served until the engine is restarted.",
            board="kvscope-overview",
            labels={"sign": "refusals"},
        ),
        Alert(
            name="KvscopeEngineDead",
            severity="critical",
            topic="engine",
            expr=f"topk by ({scope.engine}) (1, {silent(timing)})\n"
            f"unless on ({scope.engine}) ({formulas.in_engine()} > 0)\n"
            f"unless on ({scope.engine}) ({_delivers(timing)})",
            wait="10s",
            keep="2m",  # requests that come to it now are of KvscopeEngineStalled, in a minute
            summary=summary,
            description='{{ if eq $labels.part "front_end" }}An API server{{ else if eq '
            '$labels.part "worker" }}A worker{{ else }}The scheduler{{ end }} of '
            f"{ENGINE} has not been heard for {{{{ $value | humanizeDuration }}}}, although it "
            "reports every second even while it idles, and the engine was ready before. It hangs "
            "or has ended, and the engine serves nothing until it is restarted.",
            board="kvscope-overview",
            labels={"sign": "silence"},
        ),
    )


def _delivers(timing: Timing) -> str:
    """Engines that their server's own page shows at work: then only our stream is cut off."""
    first_tokens = series("kvscope_time_to_first_token_seconds_count")
    return f"increase({first_tokens}[{timing.range('1m')}]) > 0"


def _whole(*states: str) -> str:
    """Servers in one of these states, which other alerts cover."""
    return f"{series('kvscope_server_state', state=states)} == 1"


def _queue_stuck(timing: Timing, scope: Scope) -> Alert:
    """Latency histograms count only delivered tokens and steps may still advance: neither shows it.

    Nor does the age of the oldest request, if clients give up and retry. The queue of ten minutes
    ago is checked too, so that an engine that has just started does not count; in a window, so that
    a scrape that was lost then does not restart the wait.
    """
    window = timing.range("10m")
    waiting = series("kvscope_requests", state="waiting")
    before = timing.last(waiting, ago="10m")
    queued = f"min_over_time({waiting}[{window}]) > 0 and {before} > 0"
    delivered = f"increase({series('kvscope_time_to_first_token_seconds_count')}[{window}])"
    return Alert(
        name="KvscopeQueueStuck",
        severity="critical",
        topic="engine",
        expr=f"sum without (state) ({queued})\nand on ({scope.engine}) ({delivered} == 0)",
        wait="1m",
        summary="Requests wait, and an engine has delivered no first token for ten minutes.",
        description=f"{COUNT} or more requests have waited at {ENGINE} for ten minutes, and none "
        "has had its first token in that time: the queue does not move, whatever the steps do.",
        board="kvscope-overview",
    )


def _not_admitting(timing: Timing) -> Alert:
    """The engine makes steps, so it is not stalled, and what waits has no latency yet."""
    held = series("kvscope_queue_wait_seconds_total", part="wait_unexplained")
    return Alert(
        name="KvscopeNotAdmitting",
        severity="warning",
        topic="engine",
        expr=f"sum without (part) (rate({held}[{timing.range('5m')}])) > {NOT_ADMITTED}",
        wait="2m",
        summary="Requests wait at an engine that has room for them.",
        description="On average {{ $value | humanize }} requests have waited for five minutes at "
        f"{ENGINE}, while slots, blocks and tokens were free: its scheduler has stopped admitting.",
        board="kvscope-overview",
    )


def _starved(timing: Timing, scope: Scope) -> Alert:
    """The queue moves, so KvscopeQueueStuck is silent, and late requests have no latency yet."""
    oldest = series("kvscope_requests_oldest_wait_seconds")
    others = formulas.mean(
        "kvscope_request_queue_seconds", timing.range("10m"), f"by ({scope.engine})"
    )
    return Alert(
        name="KvscopeRequestStarved",
        severity="warning",
        topic="queue",
        expr=f"{oldest} > {timing.seconds(f'{STARVED_SECONDS}s'):g}\n"
        f"and on ({scope.engine}) ({STARVED_FACTOR} * {others} < on ({scope.engine}) {oldest})",
        wait="2m",
        summary="A request waits, and an engine serves others that came later.",
        description=f"A request has waited at {ENGINE} for "
        "{{ $value | humanizeDuration }}, which is more than "
        f"{STARVED_FACTOR} times as long as those that were served in the last ten minutes: others "
        "overtake it.",
        board="kvscope-overview",
    )


def _source_down(timing: Timing, scope: Scope) -> Alert:
    """Not for a starting server, whose socket may be older than its scheduler; one of which a ready
    engine has fallen silent has not been ready since, but does not start."""
    same = f"on ({scope.server})"
    return Alert(
        name="KvscopeSourceDown",
        severity="warning",
        topic="exporter",
        expr=f"{series('kvscope_source_up')} == 0\n"
        f"unless {same} (\n"
        f"  max by ({scope.server}) ({_whole('expected', 'loading', 'gone')})\n"
        f"  unless {same} {silent(timing)}\n)",
        wait="1m",
        summary="The exporter does not hear an engine that it watches.",
        description="For a minute the exporter of {{ $labels.instance }} has not heard "
        "{{ if $labels.model_name }}{{ $labels.model_name }} (engine {{ $labels.engine }})"
        "{{ else }}any engine{{ end }}{{ with $labels.endpoint }} at {{ . }}{{ end }}. What was "
        "known of it is gone, and other alerts about it cannot fire.",
        board="kvscope-exporter",
        by=("instance",),
    )


def _observer_stopped() -> Alert:
    return Alert(
        name="KvscopeObserverStopped",
        severity="warning",
        topic="exporter",
        expr=f"{series('kvscope_observer_stopped')} == 1",
        wait="10s",
        summary="The observer in an inference server is off.",
        description=f"{ENGINE} serves requests as before, but its observer met something that it "
        "does not understand and has switched itself off, or an operator has switched it off: the "
        "engine's metrics are absent until the server is restarted, or `kvscope observer on`, and "
        "alerts on them cannot fire.",
        board="kvscope-exporter",
    )


def _dropped(timing: Timing) -> Alert:
    dropped = series("kvscope_event_batches_dropped_total")
    return Alert(
        name="KvscopeEventsDropped",
        severity="warning",
        topic="exporter",
        expr=f"increase({dropped}[{timing.range('5m')}]) > 0",
        wait="10s",
        summary="The exporter cannot keep up and loses the engine's events.",
        description="The exporter of {{ $labels.instance }} lost about "
        f"{COUNT} batches of events of {{{{ $labels.model_name }}}} (engine "
        "{{ $labels.engine }}) in the last five minutes: counters are too low, and the pool's "
        "gauges are absent until its state is known again.",
        board="kvscope-exporter",
    )


def _folds() -> Alert:
    return Alert(
        name="KvscopeFoldFailed",
        severity="warning",
        topic="exporter",
        expr=f"{series('kvscope_fold_errors_total')} > 0",
        wait="10s",
        summary="A part of the exporter has failed, and its metrics are gone.",
        description=f"A fold for {ENGINE}, which the log names, raised an exception and was given "
        "up: its families are absent until a restart, and alerts on them cannot fire. This is a "
        "bug.",
        board="kvscope-exporter",
    )


def _page_incomplete(timing: Timing) -> Alert:
    failed = series("kvscope_collect_errors_total")
    return Alert(
        name="KvscopePageIncomplete",
        severity="warning",
        topic="exporter",
        expr=f"increase({failed}[{timing.range('5m')}]) > 0",
        wait="10s",
        summary="A part of the exporter's page fails and is left out of it.",
        description="Parts of the page of {{ $labels.instance }}, which the log names, raised an "
        f"exception about {COUNT} times in the last five minutes: their families are absent, and "
        "alerts on them cannot fire. This is a bug.",
        board="kvscope-exporter",
        by=("instance",),
    )


def _not_reloaded() -> Alert:
    return Alert(
        name="KvscopeReloadFailed",
        severity="warning",
        topic="exporter",
        expr=f"{series('kvscope_config_last_reload_successful')} == 0",
        wait="1m",
        summary="A sidecar could not read its configuration again, and goes on with the old one.",
        description="The sidecar of {{ $labels.instance }} had to read its configuration file "
        "again, and the file, as its log says, cannot be used: what was changed is not in effect, "
        "and a restart would fail.",
        board="kvscope-exporter",
        by=("instance",),
    )


def _imbalance() -> Alert:
    return Alert(
        name="KvscopeLedgerImbalance",
        severity="warning",
        topic="exporter",
        expr=f"{series('kvscope_kv_ledger_imbalance_blocks')} != 0",
        wait="1m",
        summary="Block counts of the exporter and the engine differ.",
        description="The events of "
        f"{ENGINE} account for {COUNT} blocks differently than its own counts. This is a bug of "
        "the engine or the exporter: do not trust the pool's figures.",
        board="kvscope-kv-pool",
    )
