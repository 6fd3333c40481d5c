"""Overview: the fleet. Is anything wrong, what, since when, why, and what to do about it."""

from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.models import units

from dashboards import thresholds as limits
from dashboards.frame import Row, assemble, engine_variables, gpu_variable
from dashboards.links import (
    KV_POOL,
    MEMORY,
    OVERVIEW,
    PREFIX_CACHE,
    RUNBOOK_OF_ROW,
    to_dashboard,
    to_engine_of_row,
)
from dashboards.overview_causes import since_when, trust, why
from dashboards.panels import BYTES, COUNT, RATIO, SECONDS, TOKENS_PER_SECOND, Q, numbers
from dashboards.queries import (
    ALERT,
    BY_ENGINE,
    firing_by_rank,
    gpu,
    gpu_room,
    known_servers,
    or_zero,
    process,
    quantile,
    rate,
    series,
    share,
    total,
    up_for,
    worst,
)
from dashboards.tables import Column, note, rows

_FOR_A_MINUTE = "1m:5s"
"""Window and resolution of a subquery: those of KvscopeEngineStalled, at whatever interval a rate
would need."""
_FIRING = f'ALERTS{{alertstate="firing",{ALERT}}}'
_KNOWN_SERVERS = known_servers(series("kvscope_kv_capacity_blocks"))
_HAS_WORK = (
    f"min_over_time((sum by (job, {BY_ENGINE}) ({series('kvscope_requests')}))"
    f"[{_FOR_A_MINUTE}]) > 0"
)
_LAST_STEP = series("kvscope_last_step_timestamp_seconds")
_STEP_AGE = f"(timestamp({_LAST_STEP}) - {_LAST_STEP}) and on (job, {BY_ENGINE}) ({_HAS_WORK})"
"""Of engines that have had something to do for a minute. Idle ones do not step, and the first step
after an idle hour takes as long as its prompt, not an hour."""
_REFUSED = total(
    rate("kvscope_requests_rejected_total", reason=("queue_full", "engine_dead")), BY_ENGINE
)
_FAILED = total(rate("kvscope_requests_finished_total", reason="error"), BY_ENGINE)
_ENDED = total(
    rate("kvscope_requests_finished_total", reason=("stop", "length", "error")), BY_ENGINE
)
_ERRORS = share(f"({_FAILED} + {_REFUSED})", f"({_ENDED} + {_REFUSED})")
"""As the SLO counts them (alerts/slo.py): what clients did is no failure."""
_RECOMPUTED = share(
    total(rate("kvscope_preemption_recomputed_tokens_total"), BY_ENGINE),
    total(rate("kvscope_step_tokens_total"), BY_ENGINE),
)


def build() -> db.Dashboard:
    """The home dashboard."""
    return assemble(
        "Overview",
        OVERVIEW,
        "All engines at a glance: is anything wrong, what, since when, why, and what to do.",
        [*engine_variables("kvscope_kv_capacity_blocks"), gpu_variable("kvscope_gpu_up")],
        [_verdict(), _what(), since_when(), why(), _advice(), trust()],
    )


def _verdict() -> Row:
    pool, memory = to_dashboard("KV pool", KV_POOL), to_dashboard("Memory", MEMORY)
    return Row(
        100,
        "Is anything wrong?  Green: no. Orange: look. Red: users are hurt",
        [
            numbers(
                101,
                "Critical alerts",
                "Critical kvscope alerts that fire now, in the whole fleet whatever is selected. "
                "Not 0: open its runbook from the table below.",
                COUNT,
                Q(or_zero(f'count(ALERTS{{alertstate="firing",{ALERT},severity="critical"}})'), ""),
                steps=limits.NONE_IS_GOOD,
                span=3,
            ),
            numbers(
                102,
                "Servers silent",
                "Servers that told of an engine in this time range and do not answer Prometheus "
                "now. Not 0: is the process alive? See the runbook KvscopeTargetDown.",
                COUNT,
                Q(or_zero(f"sum((1 - up) * on (job, instance) {_KNOWN_SERVERS})"), ""),
                steps=limits.NONE_IS_GOOD,
                span=3,
            ),
            numbers(
                103,
                "Hanging since",
                "Time since the last step of an engine that has had work for a minute. Red: the "
                "engine hangs; look at /health and the log, then restart it.",
                SECONDS,
                Q(f"clamp_min({worst(_STEP_AGE)}, 0) or vector(0)", ""),
                steps=limits.STEP_AGE_SECONDS,
                span=3,
                link=pool,
            ),
            numbers(
                104,
                "Error ratio",
                "Share of requests that the server failed, or refused because its queue was full "
                "or its engine dead, in the engine where that is highest. What clients did (an "
                "abort, a prompt too long) does not count, as in the service level. Red: the KV "
                "pool dashboard says by which reason; 'idle' means that no request ended.",
                RATIO,
                Q(worst(_ERRORS), ""),
                steps=limits.ERROR_SHARE,
                span=3,
                when_absent="idle",
                link=to_dashboard("Reasons", KV_POOL),
            ),
            numbers(
                105,
                "First token",
                "95 of 100 requests have their first token within this time, in the engine where "
                "that is longest. Red: sort the engines below by it, and compare with queueing. "
                "Queue long: pool or batch is full. Queue short: prompts are long.",
                SECONDS,
                Q(worst(quantile(0.95, "kvscope_time_to_first_token_seconds", BY_ENGINE)), ""),
                steps=limits.FIRST_TOKEN_SECONDS,
                span=3,
                when_absent="idle",
            ),
            numbers(
                106,
                "Fullest pool",
                "Blocks that requests reference, of those that can be handed out, in the engine "
                "where that is highest. Red: the next burst preempts. Open the KV pool.",
                RATIO,
                Q(worst(series("kvscope_kv_usage_ratio", basis="active")), ""),
                steps=limits.POOL_USAGE,
                span=3,
                link=pool,
            ),
            numbers(
                107,
                "Done twice",
                "Share of the computed tokens that had been computed before and were thrown away "
                "by a preemption, in the engine where that is highest. Orange: its pool is too "
                "small for its load, or too many sequences run at once.",
                RATIO,
                Q(worst(_RECOMPUTED), ""),
                steps=limits.RECOMPUTED_SHARE,
                span=3,
                when_absent="idle",
                link=to_dashboard("Bill", KV_POOL),
            ),
            numbers(
                108,
                "GPU room",
                "Memory that the next allocation can get, less the largest step so far, on the GPU "
                "where that is least. Red: the next step as large runs out of memory. Open Memory.",
                BYTES,
                Q(f"min({gpu_room()}) or min({gpu('kvscope_gpu_memory_headroom_bytes')})", ""),
                steps=limits.ROOM_AFTER_PEAK_BYTES,
                span=3,
                when_absent="no GPU",
                link=memory,
            ),
        ],
    )


def _what() -> Row:
    by = f"job, {BY_ENGINE}"
    hits = share(
        total(rate("kvscope_prefix_cache_hit_tokens_total", phase="first"), by),
        total(rate("kvscope_prefix_cache_queried_tokens_total", phase="first"), by),
    )
    return Row(
        200,
        "What is wrong, and where?",
        [
            rows(
                201,
                "Alerts firing, and since when",
                "Every kvscope alert that fires now. Click its name for the runbook: meaning, "
                "diagnosis and the right mitigation.",
                Q(f"1000 * ({_FIRING} * ignoring (alertstate) ALERTS_FOR_STATE)", "since"),
                Q(firing_by_rank("sum without (alertstate)"), "rank"),
                columns={
                    "rank": Column("Severity", meanings=limits.SEVERITIES, width=90),
                    "alertname": Column("Alert", link=RUNBOOK_OF_ROW),
                    "instance": Column("Server"),
                    "model_name": Column("Model"),
                    "gpu": Column("GPU", width=60),
                    "since": Column("Since", unit=units.DateTimeFromNow, width=145),
                },
                span=24,
                height=7,
                when_absent="No alert fires.",
                worst_first="Severity",
            ),
            rows(
                202,
                "Engines",
                "One line an engine, the longest queue first; click a model for its KV pool, a "
                "hit ratio for its prefix cache. A coloured cell is where to begin. Up for less "
                "than its neighbours, and not by your doing: it crashed; look at the end of its "
                "log.",
                Q(worst(series("kvscope_kv_usage_ratio", basis="active"), by), "pool"),
                Q(worst(series("kvscope_requests", state="running"), by), "running"),
                Q(worst(series("kvscope_requests", state="waiting"), by), "waiting"),
                Q(quantile(0.95, "kvscope_time_to_first_token_seconds", by), "ttft"),
                Q(hits, "hits"),
                Q(total(rate("kvscope_preemption_recomputed_tokens_total"), by), "twice"),
                Q(worst(series("kvscope_kv_time_to_exhaustion_seconds"), by), "exhaustion"),
                Q(up_for(process()), "up"),
                columns={
                    "model_name": Column("Model", link=to_engine_of_row("KV pool", KV_POOL)),
                    "instance": Column("Server", width=150),
                    "engine": Column("Engine", width=65),
                    "pool": Column("Pool", RATIO, limits.POOL_USAGE),
                    "running": Column("Running", COUNT),
                    "waiting": Column("Waiting", COUNT, limits.SOME_ARE_WORTH_A_LOOK),
                    "ttft": Column("First token p95", SECONDS, limits.FIRST_TOKEN_SECONDS),
                    "hits": Column(
                        "Hit ratio", RATIO, link=to_engine_of_row("Prefix cache", PREFIX_CACHE)
                    ),
                    "twice": Column("Done twice", TOKENS_PER_SECOND, width=100),
                    "exhaustion": Column("Full in", SECONDS, limits.TIME_TO_EXHAUSTION),
                    "up": Column("Up for", SECONDS, width=100),
                },
                span=24,
                height=8,
                worst_first="Waiting",
            ),
        ],
    )


_ADVICE = """
| you see | it means | do |
|---|---|---|
| pool red, **computed twice** rising | running sequences need more blocks than there are | add \
replicas; more KV memory (`--kv-cache-memory-bytes`, `--gpu-memory-utilization`); lower \
`--max-num-seqs` |
| pool low, requests waiting | the batch is full, not the pool | raise `--max-num-seqs` or \
`--max-num-batched-tokens` |
| pool *resident* full, *active* low | the cache fills idle memory: as it should be | nothing |
| hit ratio fell | prompts changed, or the cache became too small | **Prefix cache**, misses by \
cause |
| GPU room red | the next large step runs out of memory | **Memory**: who grew? Lower \
`--gpu-memory-utilization`, or move the other process |
| work, but no step | the engine hangs | `/health`, the log, restart |
"""


def _advice() -> Row:
    return Row(500, "What to do?", [note(501, "From symptom to remedy", _ADVICE, height=8)])
