"""Recording rules, `level:metric:operations`.

Levels: `engine` keeps the labels that distinguish engines (job, instance, model_name, engine),
`server` keeps job and instance, `model` keeps those of the scope: the replicas of one model in one
place.
"""

from kvscope_alerts import dcgm
from kvscope_alerts.rule import Group, Record, Rule
from kvscope_alerts.scope import PEERS, Scope
from kvscope_alerts.thresholds import GONE_FOR, JOB, SEEN
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.selectors import series

GIVEN_UP_SHARE = "model:kvscope_requests_given_up:ratio_rate15m"
GIVEN_UP_TOTAL = "model:kvscope_requests_given_up:increase15m"
MODEL_ITL_MEAN = "model:kvscope_inter_token_latency_seconds:mean_rate10m"
MODEL_TOKENS = "model:kvscope_inter_token_latency_seconds:rate10m"
API_FAILURES = "server:kvscope_api_failures:rate"
BLOCKS = "engine:kvscope_kv_usable_blocks:max"
CARD = "server:kvscope_card:max"

HIT_RATIO = "engine:kvscope_prefix_cache_hit:ratio_rate5m"
HIT_RATIO_10M = "engine:kvscope_prefix_cache_hit:ratio_rate10m"
HIT_RATIO_6H = "engine:kvscope_prefix_cache_hit:ratio_rate6h"
RECOMPUTED_RATIO = "engine:kvscope_recomputed_tokens:ratio_rate5m"
RECOMPUTED_RATIO_10M = "engine:kvscope_recomputed_tokens:ratio_rate10m"
ERROR_SHARE_10M = "engine:kvscope_request_errors:ratio_rate10m"
TTFT_MEAN_10M = "engine:kvscope_time_to_first_token_seconds:mean_rate10m"
ITL_MEAN_10M = "engine:kvscope_inter_token_latency_seconds:mean_rate10m"
ENGINES = "model:kvscope_engines:count"
ENGINES_SEEN = f"model:kvscope_engines:max{GONE_FOR}"
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
        Group(name="kvscope-models.rules", rules=_models(timing, scope), interval="1m"),
        Group(name="kvscope-fleet.rules", rules=_fleet(scope)),
        Group(name="kvscope-seen.rules", rules=_seen(timing, scope), interval="1m"),
    ]


def _prefix(timing: Timing) -> list[Rule]:
    return [
        Record(record=record, expr=formulas.hit_ratio(timing.range(window), "without (phase)"))
        for record, window in ((HIT_RATIO, "5m"), (HIT_RATIO_10M, "10m"), (HIT_RATIO_6H, "6h"))
    ]


def _preemption(timing: Timing) -> list[Rule]:
    return [
        Record(record=record, expr=formulas.recomputed_share(timing.range(window)))
        for record, window in ((RECOMPUTED_RATIO, "5m"), (RECOMPUTED_RATIO_10M, "10m"))
    ]


def _replicas(timing: Timing, scope: Scope) -> list[Rule]:
    """Figures by which replicas are compared, with the card of their server as far as NVML or
    DCGM's exporter names it."""
    window, each = timing.range("10m"), f"by ({scope.engine}, {', '.join(PEERS)})"
    nvml = f'label_replace({series("kvscope_gpu_info")}, "card", "$1", "name", "(.+)")'
    cards = f"group by ({scope.server}, card) ({nvml} or {dcgm.TEMPERATURE})"
    figures = {
        ERROR_SHARE_10M: formulas.engine_error_share(window, each),
        TTFT_MEAN_10M: formulas.mean("kvscope_time_to_first_token_seconds", window, each),
        ITL_MEAN_10M: formulas.mean("kvscope_inter_token_latency_seconds", window, each),
        BLOCKS: f"max {each} ({series('kvscope_kv_usable_blocks')})",
    }
    by_server = f"by ({scope.server}, model_name)"
    return [
        Record(record=CARD, expr=f"topk by ({scope.server}) (1, {cards})"),
        *(
            Record(
                record=record,
                expr=f"({expr})\n* on ({scope.server}) group_left (card) {CARD}\n"
                f"or on ({scope.engine}) {expr}",
            )
            for record, expr in figures.items()
        ),
        *(
            Record(record=API_FAILURES + w, expr=formulas.api_failures(timing.range(w), by_server))
            for w in ("10m", "5m")
        ),
    ]


def _models(timing: Timing, scope: Scope) -> list[Rule]:
    """Figures by which a model is compared with what it was."""
    by, minutes, quarter = f"by ({scope.model})", timing.range("10m"), timing.range("15m")
    ended = "kvscope_requests_finished_total"
    # A vLLM's page does not count what its clients gave up; its observer sees those before a token.
    given_up = series(ended, reason="abort"), series("kvscope_request_abandoned_seconds_count")
    left = " or ".join(f"sum {by} (rate({counter}[{quarter}]) > 0)" for counter in given_up)
    total = f"sum {by} (rate({series(ended)}[{quarter}]))"
    return [
        Record(
            record=MODEL_ITL_MEAN,
            expr=formulas.mean("kvscope_inter_token_latency_seconds", minutes, by),
        ),
        Record(record=MODEL_TOKENS, expr=formulas.token_gaps(minutes, by)),
        Record(record=GIVEN_UP_SHARE, expr=formulas.share(f"({left})", total)),
        Record(record=GIVEN_UP_TOTAL, expr=f"({left}) * {timing.seconds('15m'):g}"),
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
        Record(
            record=ENGINES_SEEN,
            expr=f"max_over_time({ENGINES}[{timing.range(GONE_FOR)}])",
        ),
    ]
