"""Alerts about the caches of a fleet, from the page of `kvscope fleet`."""

from kvscope_alerts.rule import COUNT, MODEL, Alert
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import FLEET_JOB, PREFIX_TOKENS_PER_SECOND
from kvscope_alerts.timing import Timing
from kvscope_monitoring import fleet
from kvscope_monitoring.selectors import rate, series
from kvscope_monitoring.thresholds import FLEET_FULL, ROUTING_LOSS_ROSE, WORKLOAD_AS_BEFORE

_PROCESS = "The process that follows the fleet, {{ $labels.instance }},"


def fleet_cache_alerts(timing: Timing, scope: Scope) -> list[Alert]:
    return [
        _loss_rose(timing, scope),
        *_incomplete(timing, scope),
        *_not_followed(timing, scope),
    ]


def _loss_rose(timing: Timing, scope: Scope) -> Alert:
    """Sums over processes that follow the same fleet, so that one that is replaced changes nothing.

    At the same hour of the day before, because the load follows the hour. After a start, a process
    has not seen what was asked for before, which looks like another workload: it is silent.
    """
    window, each = timing.range("30m"), f"by ({scope.model}, name_space)"
    then = f"{window}] offset {timing.range('1d')}"

    def before(expr: str) -> str:
        return expr.replace(f"{window}]", then)

    lost = fleet.lost(fleet.ROUTING, window, each)
    seen = fleet.reached("seen", window, each)
    asked = fleet.tokens("asked", window, each)
    return Alert(
        name="KvscopeRoutingLossRose",
        severity="warning",
        topic="prefix-cache",
        expr=f"({lost})\n- ({before(lost)})\n> {ROUTING_LOSS_ROSE:.2f}\n"
        f"and abs(({seen})\n- ({before(seen)})) < {WORKLOAD_AS_BEFORE:.2f}\n"
        f"and {asked} > {PREFIX_TOKENS_PER_SECOND}",
        wait="15m",
        keep="15m",
        summary="The router loses more prefix hits than a day before, under the same workload.",
        description=f"Requests to {MODEL} go to replicas that do not hold their prompts: routing "
        "loses {{ $value | humanizePercentage }} more of the prompt tokens than at this hour of "
        "the day before, although as many of them had been asked for before.",
        board="kvscope-fleet-cache",
        by=("model_name",),
    )


def _incomplete(timing: Timing, scope: Scope) -> tuple[Alert, ...]:
    """Longer than a roll-out of one replica takes, and a start of the process itself."""
    each = f"by ({scope.server})"
    up = timing.last(series("kvscope_fleet_sidecar_up"))
    not_counted = series("kvscope_fleet_replicas", state=("unknown", "incomparable", "doubled"))
    left_out = timing.last(not_counted)
    sets = timing.last(series("kvscope_fleet_name_spaces"))

    def one(sign: str, expr: str, wait: str, description: str, by: tuple[str, ...] = ()) -> Alert:
        return Alert(
            name="KvscopeFleetIncomplete",
            severity="warning",
            topic="exporter",
            expr=expr,
            wait=wait,
            summary="The figures of a fleet's caches leave replicas out.",
            description=f"{_PROCESS} {description}",
            board="kvscope-fleet-cache",
            by=by,
            labels={"sign": sign},
        )

    return (
        one(
            "unread",
            f"count {each} ({up} == 0)",
            "15m",
            f"has had no answer from {COUNT} of its sidecars for a quarter of an hour: what their "
            "replicas find and hold is missing from the waterfall.",
        ),
        one(
            "uncounted",
            f"sum {each} ({left_out}) > 0",
            "15m",
            f"has left out {COUNT} replicas for a quarter of an hour: what they hold is not known, "
            "cannot be compared, or is counted elsewhere. /api/fleet has the reason of each.",
        ),
        one(
            "names",
            f"max by ({scope.server}, model_name) ({sets}) > 1",
            "1h",
            f"has seen {COUNT} sets of replicas of {{{{ $labels.model_name }}}} for an hour, whose "
            "blocks have names that cannot be compared: none of them finds what another set "
            "holds. Its start page says what differs.",
            by=("model_name",),
        ),
    )


def _not_followed(timing: Timing, scope: Scope) -> tuple[Alert, ...]:
    """A process that went with its target has no `up`. It is remembered for a day, and no longer,
    since a fleet need not be followed. Where the job has a further process, only `down` can tell.
    """
    up = f'up{{job="{FLEET_JOB}"}}'
    window = timing.range("10m")
    folding = rate("kvscope_fleet_fold_seconds_total", window)
    # Asking many sidecars takes the core from folding, whose share then stays lower.
    running = f'rate(process_cpu_seconds_total{{job="{FLEET_JOB}"}}[{window}])'

    def one(sign: str, expr: str, wait: str, description: str) -> Alert:
        return Alert(
            name="KvscopeFleetNotFollowed",
            severity="warning",
            topic="exporter",
            expr=expr,
            wait=wait,
            summary="A fleet's caches are not followed, or not fast enough.",
            description=description,
            board="kvscope-fleet-cache",
            by=(),
            labels={"sign": sign},
        )

    return (
        one(
            "down",
            f"{up} == 0",
            "10m",
            f"{_PROCESS} has not answered Prometheus for ten minutes: unless a second process "
            "follows the same replicas, nothing is known of what routing, sharing and size cost.",
        ),
        one(
            "gone",
            f"max by ({scope.job}) (max_over_time({up}[{timing.range('1d')}])) == 1\n"
            f"unless on ({scope.job}) {up}",
            "10m",
            "Prometheus has had no target of job {{ $labels.job }} for ten minutes, and had one "
            "that answered within the last day: nothing is known of what routing, sharing and "
            "size cost.",
        ),
        one(
            "full",
            f"{folding} > {FLEET_FULL}\nor {running} > {FLEET_FULL}",
            "15m",
            f"{_PROCESS} has been busy for {{{{ $value | humanizePercentage }}}} of a quarter of "
            "an hour, with folding or on a core: at 100 % it lags, and loses replicas.",
        ),
    )
