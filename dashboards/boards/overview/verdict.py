"""Overview, first row: is anything wrong in the fleet?"""

from dashboards.kit import pressure
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.links import KV_POOL, MEMORY, to_dashboard
from dashboards.kit.panels import BYTES, COUNT, RATIO, SECONDS, Q, numbers
from dashboards.kit.queries import (
    ALERT,
    BY_ENGINE,
    EACH_ENGINE,
    ENGINE,
    RATE_WINDOW,
    every_engine,
    gpu,
    gpu_room,
    or_zero,
    quantile,
    silent_servers,
    worst,
)
from monitoring import formulas

_STALLED = formulas.stalled(selector=ENGINE)
_ERRORS = formulas.error_share(RATE_WINDOW, EACH_ENGINE, ENGINE)
_RECOMPUTED = formulas.recomputed_share(RATE_WINDOW, EACH_ENGINE, ENGINE)

_WATCHDOG = 'ALERTS{alertname="KvscopeWatchdog",alertstate="firing"}'
"""Fires always, where our rules are evaluated."""


def _firing(severity: str) -> str:
    return f'count(ALERTS{{alertstate="firing",{ALERT},severity="{severity}"}})'


def row() -> Row:
    pool, memory = to_dashboard("KV pool", KV_POOL), to_dashboard("Memory", MEMORY)
    return Row(
        100,
        "Is anything wrong?  Green: no. Orange: look. Red: users are hurt",
        [
            numbers(
                101,
                "Alerts firing",
                "kvscope alerts that fire now, by severity, in the whole fleet whatever is "
                "selected. Not 0: open its runbook from the table below, critical ones first. 'no "
                "rules': our alerts are not loaded, or nothing evaluates them.",
                COUNT,
                *(
                    Q(or_zero(_firing(name), _WATCHDOG), name)
                    for name, _ in limits.SEVERITIES.values()
                ),
                steps=limits.NONE_IS_GOOD,
                judged={
                    "warning": limits.SOME_ARE_WORTH_A_LOOK,
                    "info": limits.NEVER_A_FAULT,
                },
                span=3,
                when_absent="no rules",
            ),
            numbers(
                102,
                "Down",
                "Servers that had an engine in this time range and do not answer Prometheus now. "
                "Not 0: is the process alive? See the runbook KvscopeTargetDown.",
                COUNT,
                Q(silent_servers(every_engine()), ""),
                steps=limits.NONE_IS_GOOD,
                span=3,
                when_absent="no engine",
            ),
            numbers(
                103,
                "Stalled for",
                "Time since the last step of the engine where that is longest, among those that "
                "have had requests for a minute. Red: it hangs; look at /health and the log, then "
                "restart it.",
                SECONDS,
                Q(or_zero(f"floor(clamp_min({worst(_STALLED)}, 0))", every_engine()), ""),
                steps=limits.STEP_AGE_SECONDS,
                span=3,
                when_absent="no engine",
                link=pool,
            ),
            numbers(
                104,
                "Error ratio",
                "Share of requests that the server failed, or refused because its queue was full "
                "or its engine was dead, in the engine where that is highest. What clients did "
                "(an abort, a prompt too long) does not count, as in the service level. Red: the "
                "KV pool dashboard says by which reason; 'idle' means that no request ended.",
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
                "Share of the usable blocks that sequences reference, in the engine where that is "
                "highest. A full pool is no fault by itself. Orange: requests wait for one that "
                "is full, or were preempted there; Recomputed and First token say how much it "
                "hurts.",
                RATIO,
                *pressure.fullest_pool(),
                steps=limits.NEVER_A_FAULT,
                judged=pressure.JUDGED,
                span=3,
                link=pool,
            ),
            numbers(
                107,
                "Recomputed",
                "Share of the computed tokens that had been computed before and were discarded by "
                "a preemption, in the engine where that is highest. Orange: its pool is too small "
                "for its load, or too many sequences run at once.",
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
