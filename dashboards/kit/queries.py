"""PromQL from the catalogue's names: selectors, rates, shares. A typo raises KeyError."""

from collections.abc import Sequence

from dashboards.kit.thresholds import SEVERITIES
from kvscope_exporter.scrape.labels import PassedHistogram
from kvscope_exporter.scrape.tables import TABLES
from kvscope_monitoring import identity, selectors
from kvscope_monitoring.formulas import share
from kvscope_monitoring.objectives import FAST

PLACE = 'cluster=~"$cluster",namespace=~"$namespace",pod=~"$pod"'
"""The place of a server. "All" includes servers without the label."""
ENGINE = f'{PLACE},model_name=~"$model",instance=~"$instance",engine=~"$engine"'
"""The selector for engine-level families."""
SERVER = f'{PLACE},instance=~"$instance"'
"""The selector for families about a server as a whole."""
GPU = f'{SERVER},uuid=~"$gpu"'
"""The selector for device-level families, which belong to a server, not to a model; see `gpu`."""

TARGET = identity.clause(*identity.PLACE, *identity.SERVER)
"""Labels that identify a scraped server, even across clusters."""
BY_ENGINE = identity.clause(*identity.PLACE, *identity.ENGINE)
"""Labels that identify an engine."""
EACH_ENGINE = f"by ({BY_ENGINE})"
"""The same labels as the grouping of a formula."""
BY_GPU = identity.clause(*identity.PLACE, "node", *identity.SERVER, *identity.GPU)
"""Labels that identify a card and the server that sees it."""
ENGINE_LEGEND = "{{instance}} ({{engine}})"
"""Legend of an engine, short or it is cut off; on Kubernetes an instance is namespace and pod."""
GPU_LEGEND = "{{instance}} GPU {{gpu}}"

RATE_WINDOW = "$__rate_interval"
WHOLE_RANGE = "$__range"
"""The dashboard's time range; for instant queries only."""
TILE_WINDOW = FAST.pairs[0].short
"""The window of tiles: the short window of the alerts, so that both agree. The last scrapes alone
would miss what the curve next to it has just shown."""
SEEN_FOR = "1d:5m"
"""Time for which a server that has gone is remembered, whatever the time range."""
ALERT = 'alertname=~"Kvscope.+",severity!="none"'
"""The selector for our alerts."""


def series(name: str, selector: str = ENGINE, **labels: str | tuple[str, ...]) -> str:
    """A selector that follows the variables; `kvscope_monitoring.selectors` checks names and
    labels."""
    return selectors.series(name, selector, **labels)


def rate(name: str, selector: str = ENGINE, **labels: str | tuple[str, ...]) -> str:
    """Growth per second over the rate window."""
    return selectors.rate(name, RATE_WINDOW, selector, **labels)


def recent(expr: str) -> str:
    """A query over the window of tiles instead of the rate window."""
    return expr.replace(f"[{RATE_WINDOW}]", f"[{TILE_WINDOW}]")


def peak(expr: str) -> str:
    """The highest value of a series in the window of tiles. expr: a selector."""
    return f"max_over_time({expr}[{TILE_WINDOW}])"


def trough(expr: str) -> str:
    """The lowest value of a series in the window of tiles."""
    return f"min_over_time({expr}[{TILE_WINDOW}])"


def over_range(name: str, selector: str = ENGINE, **labels: str | tuple[str, ...]) -> str:
    """The growth of a counter in the time range on screen."""
    return f"increase({series(name, selector, **labels)}[{WHOLE_RANGE}])"


def added(name: str, selector: str = ENGINE, **labels: str | tuple[str, ...]) -> str:
    """The growth of a counter in the rate window, for events too rare for a rate."""
    return f"increase({series(name, selector, **labels)}[{RATE_WINDOW}])"


def total(expr: str, by: str = "") -> str:
    return f"sum by ({by}) ({expr})" if by else f"sum({expr})"


def worst(expr: str, by: str = "") -> str:
    return f"max by ({by}) ({expr})" if by else f"max({expr})"


def hundredths(expr: str) -> str:
    """Rounded to two places: the rest after a peak is 0, not 0.0000868."""
    return f"round({expr}, 0.01)"


def or_zero(expr: str, there: str) -> str:
    """0 if the query returns nothing although `there` does; for counts.

    Without the latter a vanished fleet would have no preemptions, and be green.
    """
    return f"{expr} or 0 * count({there})"


def quantile(q: float, name: str, by: str = "", selector: str = ENGINE) -> str:
    """Quantile of a histogram's observations in the rate window; none of engines with different
    bounds together."""
    rates = rate(f"{name}_bucket", selector)
    if name not in OF_THE_SERVERS or BY_ENGINE in by:
        return quantile_of(q, rates, by)
    return f"histogram_quantile({q}, {_alike(rates, by)})"


def quantile_apart(q: float, name: str) -> str:
    """The quantiles of each model, where all engines have none together."""
    return f"{quantile(q, name, identity.MODEL)} unless on () {quantile(q, name)}"


def quantile_of(q: float, bucket_rates: str, by: str = "") -> str:
    """Quantile from rates of buckets that are not yet summed."""
    return f"histogram_quantile({q}, {total(bucket_rates, f'le, {by}' if by else 'le')})"


def mean(name: str, by: str = "") -> str:
    """Mean of a histogram's observations in the rate window."""
    return share(total(rate(f"{name}_sum"), by), total(rate(f"{name}_count"), by))


OF_THE_SERVERS = frozenset(
    row.family
    for tables in TABLES.values()
    for table in tables
    for row in table.rows
    if isinstance(row.value, PassedHistogram)
)
"""Histograms that are read from the pages of servers, in the buckets of each kind of server."""


def _alike(growth: str, by: str = "") -> str:
    """Sums by bucket, of the groups whose engines all have the same bounds: what one of them does
    not count would be missing from the sum, and a higher bucket hold less than a lower one."""
    group = f"le, {by}" if by else "le"
    count = f"count by ({group}) ({growth})"
    least = f"min by ({by}) ({count})" if by else f"min({count})"
    return f"{total(growth, group)} and on ({by}) ({least} == {worst(count, by)})"


def firing_by_rank(aggregate: str) -> str:
    """The firing alerts by the rank of their severity. aggregate: such as `max by (alertname)`."""
    return " or ".join(
        f'{rank} * {aggregate} (ALERTS{{alertstate="firing",{ALERT},severity="{name}"}})'
        for rank, (name, _) in SEVERITIES.items()
    )


def every_engine() -> str:
    """One series per engine, even while the state of its pool is unknown."""
    return series("kvscope_source_up", f"{identity.HAS_ENGINE},{ENGINE}")


def every_part() -> str:
    """The same, and of each further host with workers of an engine."""
    return series("kvscope_source_up")


WATCHED_START = ("kvscope_server_start_time_seconds", "process_start_time_seconds")
"""Families with the start time of a server's process: the watched one's if its page has it,
otherwise the scraped one's."""


def server_age(names: Sequence[str] = WATCHED_START) -> str:
    """Seconds since each server's process started, from the first available of these families."""
    began = " or ".join(f"max by ({TARGET}) ({series(name, SERVER)})" for name in names)
    return f"(time() - ({began}))"


def up_for(engines: str, names: Sequence[str] = WATCHED_START) -> str:
    """Seconds since the process started, by engine. engines: one series per engine."""
    age = server_age(names)
    return f"{age} * on ({TARGET}) group_right () group by ({BY_ENGINE}) ({engines})"


def known_servers(engines: str) -> str:
    """Servers that had an engine in the time range, or in the last day: a short range must not hide
    one that went before it."""
    return f"group by ({TARGET}) ({seen(engines)})"


def seen(engines: str) -> str:
    """One series for each present or former engine; one value in five minutes is enough."""
    return f"max_over_time({engines}[{SEEN_FOR}]) or last_over_time({engines}[{WHOLE_RANGE}])"


def silent_servers(engines: str) -> str:
    """The number of servers that had an engine and do not answer Prometheus now.

    A removed one has no `up` and does not count.
    """
    known = known_servers(engines)
    return or_zero(f"sum((1 - up) * on ({TARGET}) {known})", known)


def of_chosen(expr: str, window: str = "") -> str:
    """Device-level series of the servers with a selected engine, since a card has no model.

    window: the range within which the server must have been present.
    """
    there = f"last_over_time({every_part()}[{window}])" if window else every_part()
    return f"({expr} and on ({TARGET}) {there})"


def gpu(name: str, **labels: str | tuple[str, ...]) -> str:
    """A device-level selector that follows the selected model and engine."""
    return of_chosen(series(name, GPU, **labels))


def least_gpu_room() -> str:
    """The room of the tightest GPU, at its lowest; without allocator figures, the headroom."""
    headroom = series("kvscope_gpu_memory_headroom_bytes", GPU)
    peak = series("kvscope_gpu_activation_peak_bytes", GPU)
    room = of_chosen(f"{trough(headroom)} - {peak}")
    return f"(min({room}) or min({of_chosen(trough(headroom))}))"


def gpu_room() -> str:
    """The headroom minus the largest step so far, by GPU."""
    headroom = series("kvscope_gpu_memory_headroom_bytes", GPU)
    return of_chosen(f"{headroom} - {series('kvscope_gpu_activation_peak_bytes', GPU)}")


def dcgm(name: str) -> str:
    """Records of our rules about cards that only DCGM's exporter reads, by pod."""
    return f"gpu:dcgm_{name}{{{SERVER}}}"
