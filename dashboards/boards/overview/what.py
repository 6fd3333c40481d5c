"""Overview: which alerts fire, and which engine is it?"""

from grafana_foundation_sdk.models import units

from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.links import KV_POOL, PREFIX_CACHE, RUNBOOK_OF_ROW, to_engine_of_row
from dashboards.kit.panels import COUNT, RATIO, SECONDS, TOKENS_PER_SECOND, Q
from dashboards.kit.queries import (
    ALERT,
    BY_ENGINE,
    ENGINE,
    RATE_WINDOW,
    every_engine,
    firing_by_rank,
    quantile,
    rate,
    series,
    total,
    up_for,
    worst,
)
from dashboards.kit.tables import Column, rows
from monitoring import formulas

_FIRING = f'ALERTS{{alertstate="firing",{ALERT}}}'


def row() -> Row:
    by = f"job, {BY_ENGINE}"
    recomputed = total(rate("kvscope_preemption_recomputed_tokens_total"), by)
    hits = formulas.hit_ratio(RATE_WINDOW, f"by ({by})", ENGINE)
    return Row(
        200,
        "What is wrong, and where?",
        [
            rows(
                201,
                "Alerts firing, and since when",
                "Every kvscope alert that fires now. Click its name for the runbook: what it "
                "means, how to find the cause, what to do.",
                Q(f"1000 * ({_FIRING} * ignoring (alertstate) ALERTS_FOR_STATE)", "since"),
                Q(firing_by_rank("sum without (alertstate)"), "rank"),
                columns={
                    "rank": Column("Severity", meanings=limits.SEVERITIES, width=90),
                    "alertname": Column("Alert", link=RUNBOOK_OF_ROW),
                    "pod": Column("Pod"),
                    "instance": Column("Server"),
                    "model_name": Column("Model"),
                    "gpu": Column("GPU", width=60),
                    "since": Column("Since", unit=units.DateTimeFromNow, width=145),
                },
                span=24,
                height=7,
                when_absent="No alert fires.",
                worst_first=("Severity",),
            ),
            rows(
                202,
                "Engines",
                "One line for each engine, the longest queue first; click a model for its KV "
                "pool, a hit ratio for its prefix cache. Begin where a cell is coloured. First "
                "token: 95 of 100 come within this time. Exhausted: the probability that its pool "
                "runs out of blocks within a minute. An "
                "engine that has been up for less time than its neighbours, without anybody "
                "having restarted it, has crashed: look at the end of its log.",
                Q(worst(series("kvscope_kv_active_ratio"), by), "pool"),
                Q(worst(series("kvscope_requests", state="running"), by), "running"),
                Q(worst(series("kvscope_requests", state="waiting"), by), "waiting"),
                Q(quantile(0.95, "kvscope_time_to_first_token_seconds", by), "ttft"),
                Q(hits, "hits"),
                Q(f"round({recomputed})", "recomputed"),
                Q(
                    worst(series("kvscope_kv_exhaustion_probability", horizon_seconds="60"), by),
                    "exhaustion",
                ),
                Q(up_for(every_engine()), "up"),
                Q(worst(series("kvscope_engine_ready"), by), "ready"),
                Q(worst(series("kvscope_requests_oldest_wait_seconds"), by), "oldest"),
                columns={
                    "model_name": Column(
                        "Model", link=to_engine_of_row("KV pool", KV_POOL), least=100
                    ),
                    "pod": Column("Pod", least=90),
                    "instance": Column("Server", width=130),
                    "engine": Column("Engine", width=60),
                    "ready": Column("State", meanings=limits.READY, width=65),
                    "pool": Column("Pool", RATIO, width=65),
                    "running": Column("Running", COUNT, width=75),
                    "waiting": Column("Waiting", COUNT, limits.SOME_ARE_WORTH_A_LOOK, width=85),
                    "oldest": Column("Oldest wait", SECONDS, limits.QUEUE_SECONDS, width=90),
                    "ttft": Column("First token", SECONDS, limits.FIRST_TOKEN_SECONDS, width=85),
                    "hits": Column(
                        "Hit ratio",
                        RATIO,
                        link=to_engine_of_row("Prefix cache", PREFIX_CACHE),
                        width=70,
                    ),
                    "recomputed": Column("Recomputed", TOKENS_PER_SECOND, width=100),
                    "exhaustion": Column(
                        "Exhausted", RATIO, limits.EXHAUSTION_PROBABILITY, width=85
                    ),
                    "up": Column("Up for", SECONDS, width=85),
                },
                span=24,
                height=8,
                worst_first=("Waiting",),
            ),
        ],
    )
