"""Recording rules, `level:metric:operations`.

Levels: `engine` keeps the labels that tell engines apart (job, instance, model_name, engine),
`server` keeps job and instance, `model` keeps those of the scope: the replicas of one model in one
place.
"""

from alerts.rule import Group, Record, Rule
from alerts.scope import Scope
from alerts.timing import Timing
from monitoring import formulas
from monitoring.selectors import series

PREEMPTIONS = "kvscope_preemptions_total"

HIT_RATIO = "engine:kvscope_prefix_cache_hit:ratio_rate5m"
HIT_RATIO_10M = "engine:kvscope_prefix_cache_hit:ratio_rate10m"
HIT_RATIO_6H = "engine:kvscope_prefix_cache_hit:ratio_rate6h"
RECOMPUTED_RATIO = "engine:kvscope_recomputed_tokens:ratio_rate5m"
RECOMPUTED_RATIO_10M = "engine:kvscope_recomputed_tokens:ratio_rate10m"
PREEMPTION_RATE = "engine:kvscope_preemptions:rate5m"
ERROR_SHARE_10M = "engine:kvscope_request_errors:ratio_rate10m"
TTFT_MEAN_10M = "engine:kvscope_time_to_first_token_seconds:mean_rate10m"
ITL_MEAN_10M = "engine:kvscope_inter_token_latency_seconds:mean_rate10m"
ENGINES = "model:kvscope_engines:count"
GPUS = "server:kvscope_gpus:count"


def recordings(timing: Timing, scope: Scope) -> list[Group]:
    return [
        Group(name="kvscope-prefix-cache.rules", rules=_prefix(timing)),
        Group(name="kvscope-preemption.rules", rules=_preemption(timing)),
        Group(name="kvscope-replicas.rules", rules=_replicas(timing, scope)),
        Group(name="kvscope-fleet.rules", rules=_fleet(scope)),
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
                (RECOMPUTED_RATIO_10M, "10m"),
            )
        ),
    ]


def _replicas(timing: Timing, scope: Scope) -> list[Rule]:
    """What replicas are compared by. Means, since a bucket's bounds are coarser than the difference
    that is looked for."""
    window, each = timing.range("10m"), f"by ({scope.engine})"
    return [
        Record(record=ERROR_SHARE_10M, expr=formulas.error_share(window, each)),
        Record(
            record=TTFT_MEAN_10M,
            expr=formulas.mean("kvscope_time_to_first_token_seconds", window, each),
        ),
        Record(
            record=ITL_MEAN_10M,
            expr=formulas.mean("kvscope_inter_token_latency_seconds", window, each),
        ),
    ]


def _fleet(scope: Scope) -> list[Rule]:
    return [
        Record(
            record=ENGINES,
            expr=formulas.engines_heard(f"by ({scope.model})", same=scope.engine),
        ),
        Record(record=GPUS, expr=f"count by ({scope.server}) ({series('kvscope_gpu_up')})"),
    ]
