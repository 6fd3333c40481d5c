"""One alert for whatever makes figures of kvscope missing or wrong; `what` says which.

None of it hurts users, and what it is about cannot alert meanwhile.
"""

from typing import NamedTuple

from kvscope_alerts.rule import COUNT, ENGINE, MODEL, Alert, Board, Group
from kvscope_alerts.scope import Scope
from kvscope_alerts.server_state import silent
from kvscope_alerts.thresholds import FLEET_JOB, WHATIF_BLOCKS
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import rate, series
from kvscope_monitoring.thresholds import FLEET_FULL, WHATIF_ERROR

_FLEET = "The process that follows the fleet, {{ $labels.instance }},"
_EXPORTER = "The exporter of {{ $labels.instance }}"
_ABSENT = "which the log names, raised an exception"


class What(NamedTuple):
    """A kind of figures, and how it shows that they are missing or wrong."""

    what: str
    expr: str
    wait: str
    description: str
    keep: str | None = None
    board: Board = "kvscope-overview"
    by: tuple[str, ...] = ("instance", "model_name", "engine")


def figure_groups(timing: Timing, scope: Scope) -> list[Group]:
    kinds = (*_of_engines(timing, scope), *_of_fleets(timing, scope))
    return [Group(name="kvscope-figures", rules=[_alert(kind) for kind in kinds])]


def _alert(kind: What) -> Alert:
    return Alert(
        name="KvscopeFiguresWrong",
        severity="warning",
        topic="exporter",
        expr=kind.expr,
        wait=kind.wait,
        keep=kind.keep,
        summary="Figures of kvscope are missing or wrong; servers are not affected.",
        description=kind.description,
        board=kind.board,
        by=kind.by,
        labels={"what": kind.what},
    )


def _of_engines(timing: Timing, scope: Scope) -> tuple[What, ...]:
    minutes, each = timing.range("5m"), f"by ({scope.engine})"
    dropped = series("kvscope_event_batches_dropped_total")
    failed = series("kvscope_collect_errors_total")
    return (
        What(
            "observer",
            f"{series('kvscope_observer_stopped')} == 1",
            "10s",
            f"{ENGINE} serves requests as before, but its observer met something that it does not "
            "understand and has switched itself off, or an operator has switched it off: what only "
            "it reports is absent until the server is restarted, or `kvscope observer on`.",
        ),
        What(
            "source",
            _not_heard(timing, scope),
            "1m",
            f"For a minute {_EXPORTER.lower()} has not heard "
            "{{ if $labels.model_name }}{{ $labels.model_name }} (engine {{ $labels.engine }})"
            "{{ else }}any engine{{ end }}{{ with $labels.endpoint }} at {{ . }}{{ end }}. What "
            "was known of it is gone, and other alerts about it cannot fire.",
            by=("instance",),
        ),
        What(
            "events",
            f"increase({dropped}[{minutes}]) > 0",
            "10s",
            f"{_EXPORTER} lost about {COUNT} batches of events of {{{{ $labels.model_name }}}} "
            "(engine {{ $labels.engine }}) in the last five minutes: counters are too low, and the "
            "pool's gauges are absent until its state is known again.",
        ),
        What(
            "fold",
            f"{series('kvscope_fold_errors_total')} > 0",
            "10s",
            f"A fold for {ENGINE}, {_ABSENT} and was given up: its families are absent until a "
            "restart, and alerts on them cannot fire. This is a bug.",
        ),
        What(
            "page",
            f"increase({failed}[{minutes}]) > 0",
            "10s",
            f"Parts of the page of {{{{ $labels.instance }}}}, {_ABSENT} about {COUNT} times in "
            "the last five minutes: their families are absent, and alerts on them cannot fire. "
            "This is a bug.",
            by=("instance",),
        ),
        What(
            "configuration",
            f"{series('kvscope_config_last_reload_successful')} == 0",
            "1m",
            "The sidecar of {{ $labels.instance }} had to read its configuration file again, and "
            "the file, as its log says, cannot be used: what was changed is not in effect, and a "
            "restart would fail.",
            by=("instance",),
        ),
        What(
            "ledger",
            f"{series('kvscope_kv_ledger_imbalance_blocks')} != 0",
            "1m",
            f"The events of {ENGINE} account for {COUNT} blocks differently than its own counts. "
            "This is a bug of the engine or the exporter: do not trust the pool's figures.",
            board="kvscope-kv-pool",
        ),
        What(
            "whatif",
            _curve_wrong(timing, each),
            "10m",
            "The hits that the what-if curve predicts for the present pool of "
            f"{ENGINE} differ from the engine's own by {{{{ $value | humanizePercentage }}}} of "
            "the blocks asked for: what it says of other sizes, and what the adviser makes of it, "
            "is wrong as well.",
            keep="5m",
            board="kvscope-prefix-cache",
        ),
    )


def _not_heard(timing: Timing, scope: Scope) -> str:
    """Not for a starting server, whose socket may be older than its scheduler; one of which a ready
    engine has fallen silent has not been ready since, but does not start."""
    same = f"on ({scope.server})"
    others = f"{series('kvscope_server_state', state=('expected', 'loading', 'gone'))} == 1"
    return (
        f"{series('kvscope_source_up')} == 0\n"
        f"unless {same} (\n  max by ({scope.server}) ({others})\n"
        f"  unless {same} {silent(timing)}\n)"
    )


def _curve_wrong(timing: Timing, each: str) -> str:
    """Silent while the curve is withheld, as it is for an engine that is known to evict otherwise:
    then it misleads no one."""
    window = timing.range("10m")
    queried = series("kvscope_prefix_cache_whatif_queried_blocks_total")
    shown = series("kvscope_prefix_cache_whatif_hit_blocks_total")
    return (
        f"{formulas.whatif_error(window, each)} > {WHATIF_ERROR}\n"
        f"and sum {each} (increase({queried}[{window}])) > {WHATIF_BLOCKS}\n"
        f"and count {each} ({shown}) > 0"
    )


def _of_fleets(timing: Timing, scope: Scope) -> tuple[What, ...]:
    """From the page of `kvscope fleet`. A process that went with its target has no `up`. It is
    remembered for a day, and no longer, since a fleet need not be followed."""
    each = f"by ({scope.server})"
    up, window = f'up{{job="{FLEET_JOB}"}}', timing.range("10m")
    read = timing.last(series("kvscope_fleet_sidecar_up"))
    not_counted = series("kvscope_fleet_replicas", state=("unknown", "incomparable", "doubled"))
    sets = timing.last(series("kvscope_fleet_name_spaces"))
    folding = rate("kvscope_fleet_fold_seconds_total", window)
    # Asking many sidecars takes the core from folding, whose share then stays lower.
    running = f'rate(process_cpu_seconds_total{{job="{FLEET_JOB}"}}[{window}])'
    seen = f"max by ({scope.job}) (max_over_time({up}[{timing.range('1d')}])) == 1"

    def one(what: str, expr: str, wait: str, said: str, by: tuple[str, ...] = ()) -> What:
        return What(what, expr, wait, said, board="kvscope-prefix-cache", by=by)

    return (
        one(
            "fleet-down",
            f"{up} == 0\nor ({seen}\nunless on ({scope.job}) {up})",
            "10m",
            "Prometheus has had no answer from a process that follows a fleet "
            "(job {{ $labels.job }}{{ with $labels.instance }}, {{ . }}{{ end }}) for ten minutes: "
            "unless a second one follows the same replicas, nothing is known of what routing, "
            "sharing and size cost.",
        ),
        one(
            "fleet-full",
            f"{folding} > {FLEET_FULL}\nor {running} > {FLEET_FULL}",
            "15m",
            f"{_FLEET} has been busy for {{{{ $value | humanizePercentage }}}} of a quarter of an "
            "hour, with folding or on a core: at 100 % it lags, and loses replicas.",
        ),
        one(
            "fleet-replicas",
            f"(count {each} ({read} == 0))\nor sum {each} ({timing.last(not_counted)}) > 0",
            "15m",
            f"{_FLEET} has left out {COUNT} replicas for a quarter of an hour: their sidecars do "
            "not answer, or what they hold is not known, cannot be compared, or is counted "
            "elsewhere. /api/fleet has the reason of each.",
        ),
        one(
            "fleet-names",
            f"max by ({scope.server}, model_name) ({sets}) > 1",
            "1h",
            f"{_FLEET} has seen {COUNT} sets of replicas of {MODEL} for an hour, whose blocks have "
            "names that cannot be compared: none of them finds what another set holds. Its start "
            "page says what differs.",
            by=("model_name",),
        ),
    )
