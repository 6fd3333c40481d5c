"""Alerts about an engine that is heard, and whose requests do not move."""

from kvscope_alerts.rule import COUNT, ENGINE, Alert, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import NOT_ADMITTED, STARVED_FACTOR, STARVED_SECONDS
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import series
from kvscope_monitoring.thresholds import STEP_AGE_SECONDS


def engine_groups(timing: Timing, scope: Scope) -> list[Group]:
    rules = [
        _stalled(timing, scope),
        _queue_stuck(timing, scope),
        _not_admitting(timing),
        _starved(timing, scope),
    ]
    return [Group(name="kvscope-engine", rules=[*rules])]


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
