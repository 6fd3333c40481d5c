"""Overview: the curves that say since when."""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import among, outstanding, quantile_lines
from dashboards.kit.frame import Row
from dashboards.kit.levels import FIRST_TOKEN_OBJECTIVE
from dashboards.kit.links import KV_POOL, to_dashboard
from dashboards.kit.panels import COUNT, RATIO, Q, graph, quantiles, timeline
from dashboards.kit.queries import (
    BY_ENGINE,
    SERVER,
    TARGET,
    every_part,
    known_servers,
    quantile,
    series,
    total,
    worst,
)

_FIRST_TOKEN = "kvscope_time_to_first_token_seconds"
_STATES = {
    0: ("silent", limits.RED),
    1: ("expected", limits.ORANGE),
    2: ("loading", limits.ORANGE),
    3: ("ready", limits.GREEN),
}


def _states() -> str:
    """By server; an exporter without its server's state uses that of its engine."""
    silent = f"0 * (up == 0 and on ({TARGET}) {known_servers(every_part())})"
    told = " or ".join(
        f"{code:g} * ({series('kvscope_server_state', SERVER, state=state)} == 1)"
        for code, state in enumerate(("gone", "expected", "loading", "ready"))
    )
    return f"min by (instance) ({silent} or {told} or 2 + {series('kvscope_engine_ready')})"


def row() -> Row:
    return Row(
        300,
        "Since when?",
        [
            graph(
                302,
                "Active share of the KV pool",
                "Share of the usable blocks that sequences reference. Long at the top: add "
                "replicas, give the pool more memory, or lower --max-num-seqs. Short peaks are "
                "healthy.",
                RATIO,
                *outstanding(worst(series("kvscope_kv_active_ratio"), BY_ENGINE), rank="avg"),
                high=1,
                steps=limits.POOL_USAGE,
                span=8,
                link=to_dashboard("KV pool", KV_POOL),
            ),
            quantiles(
                303,
                "Time to first token",
                "How long users wait before they see anything. A p99 far from the p50: a few "
                "requests pay for the others; look at waiting requests and preemptions at that "
                "moment. One engine far worse than all others: only that engine is in trouble; "
                "sort the table of engines by first token. target: what is chosen above.",
                *quantile_lines(_FIRST_TOKEN, 0.5, 0.95),
                Q(worst(quantile(0.95, _FIRST_TOKEN, BY_ENGINE)), "p95, worst engine"),
                FIRST_TOKEN_OBJECTIVE,
                colours={"p95, worst engine": "purple"},
                coarse=True,
                span=8,
            ),
            graph(
                304,
                "Requests",
                "Running and waiting now, swapped out or not. Waiting that does not drain: "
                "arrivals exceed what the engines can serve; add replicas or refuse earlier.",
                COUNT,
                Q(total(series("kvscope_requests", state="running")), "running"),
                Q(total(series("kvscope_requests", state=("waiting", "swapped"))), "waiting"),
                colours={"running": "blue", "waiting": "orange"},
                axis="requests",
                span=8,
            ),
            timeline(
                306,
                "State of the servers",
                "silent: does not answer Prometheus, or its engine is no longer heard. loading: "
                "takes no requests yet; if for longer than usual, its log shows what it waits "
                "for. Loading again unprompted: it crashed. Of many servers, the ten that were "
                "least ready.",
                among(_states(), "{{instance}}", by="instance", lowest=True, rank="avg"),
                meanings=_STATES,
                span=24,
                when_absent="No engine in this time range.",
                height=6,
            ),
        ],
    )
