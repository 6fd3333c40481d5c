"""Recording rules, `level:metric:operations`.

Levels: `engine` keeps the labels that tell engines apart (job, instance, model_name, engine),
`model` keeps model_name alone: the fleet.
"""

from alerts.rule import Group, Record, Rule
from alerts.timing import Timing
from monitoring import formulas
from monitoring.selectors import series

STEP_TOKENS = "kvscope_step_tokens_total"
PREEMPTIONS = "kvscope_preemptions_total"

HIT_RATIO = "engine:kvscope_prefix_cache_hit:ratio_rate5m"
HIT_RATIO_10M = "engine:kvscope_prefix_cache_hit:ratio_rate10m"
HIT_RATIO_6H = "engine:kvscope_prefix_cache_hit:ratio_rate6h"
RECOMPUTED_RATIO = "engine:kvscope_recomputed_tokens:ratio_rate5m"
RECOMPUTED_RATIO_2M = "engine:kvscope_recomputed_tokens:ratio_rate2m"
RECOMPUTED_RATIO_10M = "engine:kvscope_recomputed_tokens:ratio_rate10m"
PREEMPTION_RATE = "engine:kvscope_preemptions:rate5m"


def recordings(timing: Timing) -> list[Group]:
    return [
        Group(name="kvscope-prefix-cache.rules", rules=_prefix(timing)),
        Group(name="kvscope-preemption.rules", rules=_preemption(timing)),
        Group(name="kvscope-fleet.rules", rules=_fleet(timing)),
    ]


def _prefix(timing: Timing) -> list[Rule]:
    return [
        Record(record=record, expr=formulas.hit_ratio(timing.range(window), "without (phase)"))
        for record, window in ((HIT_RATIO, "5m"), (HIT_RATIO_10M, "10m"), (HIT_RATIO_6H, "6h"))
    ]


def _preemption(timing: Timing) -> list[Rule]:
    rate = f"rate({series(PREEMPTIONS)}[{timing.range('5m')}])"
    return [
        Record(record=PREEMPTION_RATE, expr=f"sum without (mode, cause) ({rate})"),
        *(
            Record(record=record, expr=formulas.recomputed_share(timing.range(window)))
            for record, window in (
                (RECOMPUTED_RATIO, "5m"),
                (RECOMPUTED_RATIO_2M, "2m"),
                (RECOMPUTED_RATIO_10M, "10m"),
            )
        ),
    ]


def _fleet(timing: Timing) -> list[Rule]:
    five, by_model = timing.range("5m"), "by (model_name)"
    sums = (
        ("kvscope_kv_blocks", "state"),
        ("kvscope_requests", "state"),
    )
    rates = (
        ("kvscope_step_tokens", STEP_TOKENS, "phase"),
        ("kvscope_requests_finished", "kvscope_requests_finished_total", "reason"),
        ("kvscope_requests_rejected", "kvscope_requests_rejected_total", "reason"),
        ("kvscope_preemptions", PREEMPTIONS, "cause"),
        (
            "kvscope_time_to_first_token_seconds_bucket",
            "kvscope_time_to_first_token_seconds_bucket",
            "le",
        ),
        (
            "kvscope_inter_token_latency_seconds_bucket",
            "kvscope_inter_token_latency_seconds_bucket",
            "le",
        ),
    )
    return [
        Record(
            record="model:kvscope_engines:count",
            expr=formulas.engines_heard("by (model_name)"),
        ),
        Record(record="model:kvscope_kv_active:ratio", expr=formulas.pool_usage(by_model)),
        *(
            Record(
                record=f"model:{family}:sum",
                expr=f"sum by (model_name, {label}) ({series(family)})",
            )
            for family, label in sums
        ),
        *(
            Record(
                record=f"model:{record}:rate5m",
                expr=f"sum by (model_name, {label}) (rate({series(family)}[{five}]))",
            )
            for record, family, label in rates
        ),
        Record(
            record="model:kvscope_prefix_cache_hit:ratio_rate5m",
            expr=formulas.hit_ratio(five, by_model),
        ),
        Record(
            record="model:kvscope_recomputed_tokens:ratio_rate5m",
            expr=formulas.recomputed_share(five, by_model),
        ),
    ]
