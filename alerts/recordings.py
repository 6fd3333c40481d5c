"""Recording rules, `level:metric:operations`.

Levels: `engine` keeps what tells engines apart (job, instance, model_name, engine), `model` keeps
model_name alone: the fleet.
"""

from alerts.promql import name, series
from alerts.rule import Group, Record, Rule
from alerts.timing import Timing

HIT_TOKENS = "kvscope_prefix_cache_hit_tokens_total"
QUERIED_TOKENS = "kvscope_prefix_cache_queried_tokens_total"
RECOMPUTED = "kvscope_preemption_recomputed_tokens_total"
STEP_TOKENS = "kvscope_step_tokens_total"
PREEMPTIONS = "kvscope_preemptions_total"

HIT_RATIO = "engine:kvscope_prefix_cache_hit:ratio_rate5m"
HIT_RATIO_10M = "engine:kvscope_prefix_cache_hit:ratio_rate10m"
HIT_RATIO_6H = "engine:kvscope_prefix_cache_hit:ratio_rate6h"
RECOMPUTED_RATIO = "engine:kvscope_recomputed_tokens:ratio_rate5m"
RECOMPUTED_RATIO_2M = "engine:kvscope_recomputed_tokens:ratio_rate2m"
PREEMPTION_RATE = "engine:kvscope_preemptions:rate5m"


def recordings(timing: Timing) -> list[Group]:
    return [
        Group(name="kvscope-prefix-cache.rules", rules=_prefix(timing)),
        Group(name="kvscope-preemption.rules", rules=_preemption(timing)),
        Group(name="kvscope-fleet.rules", rules=_fleet(timing)),
    ]


def _prefix(timing: Timing) -> list[Rule]:
    """First admissions only: a preempted request that finds its own blocks would flatter it."""
    return [
        Record(record=record, expr=_hit_ratio(timing.range(window)))
        for record, window in ((HIT_RATIO, "5m"), (HIT_RATIO_10M, "10m"), (HIT_RATIO_6H, "6h"))
    ]


def _hit_ratio(window: str) -> str:
    hit, queried = (series(family, phase="first") for family in (HIT_TOKENS, QUERIED_TOKENS))
    return (
        f"sum without (phase) (rate({hit}[{window}]))\n"
        f"/ (sum without (phase) (rate({queried}[{window}])) > 0)"
    )


def _preemption(timing: Timing) -> list[Rule]:
    five = timing.range("5m")
    return [
        Record(
            record=PREEMPTION_RATE,
            expr=f"sum without (mode, cause) (rate({name(PREEMPTIONS)}[{five}]))",
        ),
        Record(record=RECOMPUTED_RATIO, expr=_recomputed(five)),
        Record(record=RECOMPUTED_RATIO_2M, expr=_recomputed(timing.range("2m"))),
    ]


def _recomputed(window: str) -> str:
    return (
        f"rate({name(RECOMPUTED)}[{window}])\n"
        f"/ (sum without (phase) (rate({name(STEP_TOKENS)}[{window}])) > 0)"
    )


def _fleet(timing: Timing) -> list[Rule]:
    five = timing.range("5m")
    usage = (
        f"sum by (model_name) ({series('kvscope_kv_blocks', state='active')})\n"
        f"/ (sum by (model_name) ({name('kvscope_kv_capacity_blocks')})"
        f" - sum by (model_name) ({series('kvscope_kv_blocks', state='reserved')}) > 0)"
    )
    hit, queried = (series(family, phase="first") for family in (HIT_TOKENS, QUERIED_TOKENS))
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
            "kvscope_time_to_first_token_seconds",
            "le",
        ),
        (
            "kvscope_inter_token_latency_seconds_bucket",
            "kvscope_inter_token_latency_seconds",
            "le",
        ),
    )
    return [
        Record(
            record="model:kvscope_engines:count",
            expr=f"count by (model_name) ({name('kvscope_kv_capacity_blocks')})",
        ),
        Record(record="model:kvscope_kv_usage:ratio", expr=usage),
        *(
            Record(
                record=f"model:{family}:sum",
                expr=f"sum by (model_name, {label}) ({name(family)})",
            )
            for family, label in sums
        ),
        *(
            Record(
                record=f"model:{record}:rate5m",
                expr=f"sum by (model_name, {label}) (rate({_counted(family, label)}[{five}]))",
            )
            for record, family, label in rates
        ),
        Record(
            record="model:kvscope_prefix_cache_hit:ratio_rate5m",
            expr=f"sum by (model_name) (rate({hit}[{five}]))\n"
            f"/ (sum by (model_name) (rate({queried}[{five}])) > 0)",
        ),
        Record(
            record="model:kvscope_recomputed_tokens:ratio_rate5m",
            expr=f"sum by (model_name) (rate({name(RECOMPUTED)}[{five}]))\n"
            f"/ (sum by (model_name) (rate({name(STEP_TOKENS)}[{five}])) > 0)",
        ),
    ]


def _counted(family: str, label: str) -> str:
    return f"{name(family)}_bucket" if label == "le" else name(family)
