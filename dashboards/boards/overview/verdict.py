"""Overview, first row: is anything wrong in the fleet?"""

from dashboards.boards.overview import incidents
from dashboards.kit import pressure
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.levels import FIRST_TOKEN, TOKEN_GAP, verdict
from dashboards.kit.links import KV_POOL, LEVELS, to_dashboard
from dashboards.kit.panels import (
    COUNT,
    RATIO,
    REQUESTS_PER_SECOND,
    SECONDS,
    TOKENS_PER_SECOND,
    Q,
    numbers,
)
from dashboards.kit.queries import (
    ALERT,
    BY_ENGINE,
    EACH_ENGINE,
    ENGINE,
    TARGET,
    TILE_WINDOW,
    every_engine,
    every_part,
    or_zero,
    peak,
    quantile,
    rate,
    recent,
    series,
    silent_servers,
    total,
    up_for,
    worst,
)
from dashboards.kit.time_parts import first_token_time
from kvscope_monitoring import formulas, identity

_STALLED = formulas.stalled(selector=ENGINE)
_ERRORS = formulas.error_share(TILE_WINDOW, f"by ({TARGET}, {identity.MODEL})", ENGINE)
_RECOMPUTED = formulas.recomputed_share(TILE_WINDOW, EACH_ENGINE, ENGINE)
_OLDEST = worst(peak(series("kvscope_requests_oldest_wait_seconds")))

_WATCHDOG = 'ALERTS{alertname="KvscopeWatchdog",alertstate="firing"}'
"""Always fires where our rules are evaluated."""


def _firing(severity: str) -> str:
    return f'count(ALERTS{{alertstate="firing",{ALERT},severity="{severity}"}})'


def row() -> Row:
    pool = to_dashboard("KV pool", KV_POOL)
    levels = to_dashboard("Service levels", LEVELS)
    return Row(
        100,
        "Is anything wrong, in the last five minutes?  "
        "Green: no. Orange: look. Red: users are hurt",
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
                "Servers that had an engine in this time range or within a day, and do not answer "
                "Prometheus now. Not 0: is the process alive? See the runbook KvscopeEngineDown.",
                COUNT,
                Q(silent_servers(every_part()), ""),
                steps=limits.NONE_IS_GOOD,
                span=3,
                when_absent="no engine",
            ),
            numbers(
                103,
                "Stuck",
                "no step: time since the last step of the engine where that is longest, among "
                "those that have had requests for a minute. Red: it hangs; look at /health and the "
                "log, then restart it. oldest wait: of any request in the last five minutes. "
                "Orange: longer than a first token may take.",
                SECONDS,
                Q(or_zero(f"floor(clamp_min({worst(_STALLED)}, 0))", every_engine()), "no step"),
                Q(f"{_OLDEST} <= ${{ttft:text}}", "oldest wait", limits.NEVER_A_FAULT),
                Q(f"{_OLDEST} > ${{ttft:text}}", "oldest wait", limits.ALWAYS_WORTH_A_LOOK),
                steps=limits.STEP_AGE_SECONDS,
                span=3,
                when_absent="no engine",
                link=pool,
            ),
            numbers(
                104,
                "Errors",
                "Share of requests that the server failed, answered with any other 5xx, or refused "
                "because its queue was full or its engine was dead, in five minutes: of the model "
                "where that is highest, in the colour of its error budget (orange: used faster "
                "than it comes back; red: at the rate that pages), and of the worst server. What "
                "clients did (an abort, a prompt too long) does not count. 'idle': no request "
                "ended.",
                RATIO,
                *verdict("answered", "failed"),
                Q(worst(_ERRORS), "worst server"),
                steps=limits.UNJUDGED,
                span=3,
                when_absent="idle",
                link=levels,
            ),
            numbers(
                105,
                "First token",
                "slow: share of the requests that had no first token within the target above, in "
                "five minutes, of the model where that is highest. Orange: its error budget is "
                "used faster than it comes back; red: at the rate that pages. slowest 5 %: they "
                "wait longer than this, in the worst engine. Long queue: the pool or the batch "
                "is full. Short queue: prompts are long.",
                RATIO,
                *verdict("first token", "slow"),
                Q(worst(recent(quantile(0.95, FIRST_TOKEN, BY_ENGINE))), "slowest 5 %"),
                steps=limits.UNJUDGED,
                units={"slowest 5 %": SECONDS},
                span=3,
                when_absent="idle",
                link=levels,
            ),
            numbers(
                108,
                "Next token",
                "slow: share of the tokens that came later after the one before than the target on "
                "Service levels allows, in five minutes, of the model where that is highest. "
                "Orange: its error budget is used faster than it comes back; red: at the rate that "
                "pages. slowest 5 %: they come later than this, in the worst engine. Large "
                "prefills, preemptions, or a GPU with low clocks.",
                RATIO,
                *verdict("next token", "slow"),
                Q(worst(recent(quantile(0.95, TOKEN_GAP, BY_ENGINE))), "slowest 5 %"),
                steps=limits.UNJUDGED,
                units={"slowest 5 %": SECONDS},
                span=3,
                when_absent="idle",
                link=levels,
            ),
            numbers(
                106,
                "Fullest pool",
                "Share of the usable blocks that sequences reference, in the engine where that is "
                "highest, at the peak of five minutes. A full pool alone is not a fault. Orange: "
                "requests wait for one that is full, were preempted there, or soon will be; "
                "Recomputed and First token say how much it hurts.",
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
                "a preemption, over five minutes, in the engine where that is highest. Orange: its "
                "pool is too small for its load, or too many sequences run at once.",
                RATIO,
                Q(worst(_RECOMPUTED), ""),
                steps=limits.RECOMPUTED_SHARE,
                span=3,
                when_absent="idle",
                link=to_dashboard("Bill", KV_POOL),
            ),
            incidents.table(),
            first_token_time(112, span=12, height=7),
            numbers(
                109,
                "Served now",
                "What the selection serves at this moment. Fewer engines than usual: see Down. An "
                "engine that has been up for less time than you expect has crashed, or was rolled "
                "out.",
                COUNT,
                Q(formulas.engines_heard(selector=ENGINE), "engines"),
                Q(total(series("kvscope_requests", state="running")), "running"),
                Q(total(series("kvscope_requests", state=("waiting", "swapped"))), "waiting"),
                Q(total(rate("kvscope_requests_finished_total")), "answered"),
                Q(total(rate("kvscope_step_tokens_total")), "computed"),
                Q(f"min({up_for(every_engine())})", "newest engine up for"),
                units={
                    "answered": REQUESTS_PER_SECOND,
                    "computed": TOKENS_PER_SECOND,
                    "newest engine up for": SECONDS,
                },
                span=24,
                height=3,
                when_absent="-",
            ),
        ],
    )
