"""Recording rules, `level:metric:operations`.

Levels: `engine` keeps the labels that distinguish engines (job, instance, model_name, engine),
`server` keeps job and instance, `model` keeps those of the scope: the replicas of one model in one
place.
"""

from kvscope_alerts.rule import Group, Record, Rule
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import JOB, SEEN
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import series

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
ENGINES_SEEN = f"model:kvscope_engines:max{SEEN}"
REPLICAS = "server:kvscope_replicas:count"
LAST_ANSWER = f"server:kvscope_answered:timestamp{SEEN}"
READY_SEEN = f"server:kvscope_ready:max{SEEN}"
SIDECAR_SEEN = f"server:kvscope_sidecar:max{SEEN}"
GPUS_SEEN = f"server:kvscope_gpus:max{SEEN}"
GPUS = "server:kvscope_gpus:count"


def recordings(timing: Timing, scope: Scope) -> list[Group]:
    return [
        Group(name="kvscope-prefix-cache.rules", rules=_prefix(timing)),
        Group(name="kvscope-preemption.rules", rules=_preemption(timing)),
        Group(name="kvscope-replicas.rules", rules=_replicas(timing, scope)),
        Group(name="kvscope-fleet.rules", rules=_fleet(scope)),
        Group(name="kvscope-seen.rules", rules=_seen(timing, scope), interval="1m"),
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
    """Figures by which replicas are compared. Means, since buckets are coarser than the differences
    to detect."""
    window, each = timing.range("10m"), f"by ({scope.engine})"
    return [
        Record(record=ERROR_SHARE_10M, expr=formulas.engine_error_share(window, each)),
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
    # A vLLM that is loading is heard before it reports its model: without this, the end of each
    # load would look like the end of a nameless model.
    heard = formulas.engines_heard(f"by ({scope.model})", 'model_name!=""', scope.engine)
    return [
        Record(record=ENGINES, expr=heard),
        Record(record=GPUS, expr=f"count by ({scope.host}) ({series('kvscope_gpu_up')})"),
    ]


def _seen(timing: Timing, scope: Scope) -> list[Rule]:
    """Servers and models of the last week, so that they are not forgotten the moment they are gone.

    Once a minute: a week of raw samples of each server would be the most expensive query of all. A
    server keeps the model that it last reported; those that were never heard have none.
    """
    past = timing.range(SEEN)
    answered, ready = "server:kvscope_answered:timestamp", "server:kvscope_ready:max"
    heard, heard_seen = "server:kvscope_heard:timestamp", f"server:kvscope_heard:timestamp{SEEN}"
    sidecar, elsewhere = "server:kvscope_sidecar:max", 'source!="inprocess"'
    named = 'model_name!=""'
    requests = series("kvscope_requests", named)  # of an engine that only its own page has
    now = f"timestamp({series('kvscope_source_up', named)} == 1) or timestamp({requests})"
    here = formulas.engine_signs(named)
    up = f'timestamp(up{{job="{JOB}"}} == 1)'
    last = f"max by ({scope.server}) (max_over_time({answered}[{past}]))"
    model = f"topk by ({scope.server}) (1, {heard_seen})"
    same = f"on ({scope.server})"
    replicas = f"count by ({scope.model}) (group by ({scope.server}, model_name) ({here}))"
    return [
        Record(record=answered, expr=f"max by ({scope.server}) ({up})"),
        Record(record=heard, expr=f"max by ({scope.server}, model_name) ({now})"),
        Record(record=heard_seen, expr=f"max_over_time({heard}[{past}])"),
        Record(
            record=LAST_ANSWER,
            expr=f"{last}\n+ {same} group_left (model_name) 0 * {model}\nor {same} {last}",
        ),
        Record(
            record=REPLICAS,
            expr=f"max by ({scope.server}) (\n"
            f"  0 * {LAST_ANSWER}{{{named}}} + on ({scope.model}) group_left () {replicas}\n)",
        ),
        Record(
            record=ready,
            expr=f"max by ({scope.server}) ({series('kvscope_server_state', state='ready')})",
        ),
        Record(record=READY_SEEN, expr=f"max_over_time({ready}[{past}])"),
        Record(
            record=sidecar,
            # our own engine has its exporter in its process
            expr=f"group by ({scope.server}) ({series('kvscope_source_up', elsewhere)})",
        ),
        Record(record=SIDECAR_SEEN, expr=f"max_over_time({sidecar}[{past}])"),
        Record(record=GPUS_SEEN, expr=f"max_over_time({GPUS}[{past}])"),
        Record(record=ENGINES_SEEN, expr=f"max_over_time({ENGINES}[{past}])"),
    ]
