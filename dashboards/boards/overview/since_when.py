"""Overview: the curves that say since when."""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import among, outstanding
from dashboards.kit.frame import Row
from dashboards.kit.levels import FIRST_TOKEN_OBJECTIVE
from dashboards.kit.links import KV_POOL, to_dashboard
from dashboards.kit.panels import COUNT, RATIO, SECONDS, Q, graph, heat, quantiles, timeline
from dashboards.kit.queries import (
    BY_ENGINE,
    buckets,
    firing_by_rank,
    quantile,
    series,
    total,
    worst,
)

_FIRST_TOKEN = "kvscope_time_to_first_token_seconds"


def row() -> Row:
    return Row(
        300,
        "Since when?",
        [
            timeline(
                301,
                "Alerts over time",
                "When which alert fired. What began first is closest to the cause; compare with "
                "the curves at the same moment.",
                Q(
                    firing_by_rank("max by (alertname)"),
                    "{{alertname}}",
                ),
                meanings=limits.SEVERITIES,
                when_absent="No alert fired in this time range.",
            ),
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
                link=to_dashboard("KV pool", KV_POOL),
            ),
            quantiles(
                303,
                "Time to first token",
                "How long users wait before they see anything. A p99 far from the p50: a few "
                "requests pay for the others; look at waiting requests and preemptions at that "
                "moment. A worst engine far from all others: it alone is sick; sort the table of "
                "engines by first token.",
                *(Q(quantile(q, _FIRST_TOKEN), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
                Q(worst(quantile(0.95, _FIRST_TOKEN, BY_ENGINE)), "p95, worst engine"),
                FIRST_TOKEN_OBJECTIVE,
                right=True,
                coarse=True,
            ),
            heat(
                307,
                "Time to first token, every request",
                "What lies behind the quantiles: a cell for each bucket of the histogram, the "
                "more it stands out, the more requests. Two bands: two kinds of requests, or of "
                "engines; choose a model above. A quantile between two bands is nobody's.",
                buckets(_FIRST_TOKEN),
            ),
            graph(
                304,
                "Requests",
                "Running and waiting now, swapped out or not. Waiting that does not go down: "
                "arrivals exceed what the engines can serve; add replicas or refuse earlier.",
                COUNT,
                Q(total(series("kvscope_requests", state="running")), "running"),
                Q(total(series("kvscope_requests", state=("waiting", "swapped"))), "waiting"),
                colours={"running": "blue", "waiting": "orange"},
                axis="requests",
                span=8,
            ),
            graph(
                305,
                "Oldest wait",
                "How long the request that has waited longest has waited, by engine. A line that "
                "climbs by a second each second is a queue that does not move, although steps may "
                "go on: look at that engine's log, then restart it.",
                SECONDS,
                *outstanding(worst(series("kvscope_requests_oldest_wait_seconds"), BY_ENGINE)),
                steps=limits.QUEUE_SECONDS,
                span=8,
            ),
            timeline(
                306,
                "Ready, or still loading",
                "Whether an engine has loaded its model and takes requests; of many, the ten that "
                "were least ready. Loading for longer than usual: its log says what it waits for. "
                "Loading again by itself: it crashed.",
                among(worst(series("kvscope_engine_ready"), BY_ENGINE), lowest=True, rank="avg"),
                meanings=limits.READY,
                span=8,
                when_absent="No engine in this time range.",
            ),
        ],
    )
