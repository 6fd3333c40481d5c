"""SGLang: names of `sglang:` with --enable-metrics.

Several ranks of one engine repeat each other: the lowest speaks. A data-parallel rank is an engine.
Its blocks are pages. Most families are not there before the first request.
"""

from exporter.readings.row import Identity, Row, Table
from exporter.readings.value import Number, Value
from exporter.readings.words import LastMoved, counter, gauge, histogram

_PAGE_SIZE = gauge("sglang:page_size")
_CAPACITY = gauge("sglang:max_total_num_tokens")
_USED = gauge("sglang:kv_used_tokens")
_CACHED = gauge("sglang:kv_evictable_tokens")
_FREE = gauge("sglang:kv_available_tokens")
_EFFECTIVE = counter("sglang:prefill_effective_tokens")
_GIB = Number(2**30)

_AS_SEQUENCES = "SGLang makes each of the n sequences of a call a request: at most this many calls"
_AT_END = "older versions: counted when a request ends"
_IN_BUCKETS = "in SGLang's buckets"


def _effective(*modes: str) -> Value:
    return counter("sglang:prefill_effective_tokens", mode=modes)


SGLANG_ROWS = (
    Row(
        family="kvscope_kv_capacity_blocks",
        value=gauge("sglang:num_pages"),
        reason="pages; SGLang reserves none of them",
    ),
    Row(family="kvscope_kv_capacity_blocks", value=_CAPACITY / _PAGE_SIZE),
    Row(family="kvscope_kv_usable_blocks", value=_CAPACITY / _PAGE_SIZE),
    Row(family="kvscope_kv_block_size_tokens", value=_PAGE_SIZE),
    Row(family="kvscope_kv_usable_tokens", value=_CAPACITY),
    Row(
        family="kvscope_kv_full_length_sequences",
        value=_CAPACITY / gauge("sglang:context_len"),
        reason="of the context length",
    ),
    *(
        Row(
            family="kvscope_kv_blocks",
            labels={"state": state},
            value=tokens / _PAGE_SIZE,
            reason="pages that open sessions protect are in none of the states",
        )
        for state, tokens in (("active", _USED), ("cached", _CACHED), ("free", _FREE))
    ),
    Row(family="kvscope_kv_active_ratio", value=_USED / _CAPACITY),
    Row(
        family="kvscope_kv_active_ratio",
        value=gauge("sglang:full_token_usage"),
        reason="of the full attention's pool",
    ),
    Row(
        family="kvscope_kv_active_ratio",
        value=gauge("sglang:token_usage"),
        worth="bound",
        reason="the fullest of a hybrid model's pools, in hundredths",
    ),
    Row(family="kvscope_kv_resident_ratio", value=(_USED + _CACHED) / _CAPACITY),
    Row(
        family="kvscope_prefix_cache_queried_tokens_total",
        labels={"phase": "first"},
        value=_effective("input", "device_hit", "host_hit", "storage_hit"),
        reason='mode="input" is what was computed, so the modes are added',
    ),
    Row(
        family="kvscope_prefix_cache_queried_tokens_total",
        labels={"phase": "first"},
        value=counter("sglang:prompt_tokens").without(_EFFECTIVE),
        worth="passed through",
        reason=_AT_END,
    ),
    Row(
        family="kvscope_prefix_cache_hit_tokens_total",
        labels={"phase": "first"},
        value=_effective("device_hit"),
    ),
    Row(
        family="kvscope_prefix_cache_hit_tokens_total",
        labels={"phase": "first"},
        value=counter("sglang:cached_tokens", cache_source=("device", "total")).without(_EFFECTIVE),
        worth="passed through",
        reason=f"{_AT_END}; absent before the first hit, of all tiers if not told apart",
    ),
    Row(
        family="kvscope_kv_block_evictions_total",
        labels={"cause": "capacity"},
        value=counter("sglang:evicted_tokens") / _PAGE_SIZE,
        reason="absent before the first request",
    ),
    Row(
        family="kvscope_preemptions_total",
        labels={"mode": "recompute"},
        value=counter("sglang:num_retracted_requests"),
        reason="absent before the first; the cause is not told",
    ),
    Row(
        family="kvscope_preemption_discarded_tokens_total",
        value=counter("sglang:num_retracted_input_tokens")
        + counter("sglang:num_retracted_output_tokens"),
        worth="bound",
        reason="lengths of what was retracted: at most this was held",
    ),
    Row(
        family="kvscope_preemption_recomputed_tokens_total",
        value=counter("sglang:realtime_tokens", mode="prefill_compute") - _effective("input"),
        reason="what was computed, less what was computed for the first time",
    ),
    *(
        Row(
            family="kvscope_requests",
            labels={"state": "waiting"},
            value=waiting,
            worth="bound",
            reason=_AS_SEQUENCES,
        )
        for waiting in (
            gauge("sglang:num_queue_reqs") + gauge("sglang:num_grammar_queue_reqs"),
            gauge("sglang:num_queue_reqs"),
        )
    ),
    Row(
        family="kvscope_requests",
        labels={"state": "running"},
        value=gauge("sglang:num_running_reqs"),
        worth="bound",
        reason=_AS_SEQUENCES,
    ),
    *(
        Row(family="kvscope_sequences", labels={"state": "waiting"}, value=waiting)
        for waiting in (
            gauge("sglang:num_queue_reqs") + gauge("sglang:num_grammar_queue_reqs"),
            gauge("sglang:num_queue_reqs"),
        )
    ),
    Row(
        family="kvscope_sequences",
        labels={"state": "running"},
        value=gauge("sglang:num_running_reqs"),
    ),
    Row(
        family="kvscope_requests_finished_total",
        value=counter("sglang:num_requests"),
        worth="passed through",
        reason="all together, without their reasons",
    ),
    Row(
        family="kvscope_time_to_first_token_seconds",
        value=histogram("sglang:time_to_first_token_seconds"),
        worth="passed through",
        reason=f"measured by the front end, {_IN_BUCKETS}",
    ),
    Row(
        family="kvscope_inter_token_latency_seconds",
        value=histogram("sglang:inter_token_latency_seconds"),
        worth="passed through",
        reason=f"absent without streaming in older versions, {_IN_BUCKETS}",
    ),
    Row(
        family="kvscope_request_duration_seconds",
        value=histogram("sglang:e2e_request_latency_seconds"),
        worth="passed through",
        reason=f"measured by the front end, {_IN_BUCKETS}",
    ),
    Row(
        family="kvscope_request_queue_seconds",
        value=histogram("sglang:queue_time_seconds"),
        worth="passed through",
        reason=_IN_BUCKETS,
    ),
    *(
        Row(
            family="kvscope_step_tokens_total",
            labels={"phase": phase},
            value=counter("sglang:realtime_tokens", mode=mode),
        )
        for phase, mode in (("prefill", "prefill_compute"), ("decode", "decode"))
    ),
    Row(
        family="kvscope_last_step_timestamp_seconds",
        value=LastMoved(counter("sglang:realtime_tokens")),
        worth="bound",
        reason="the step ended before, by as much as lies between two readings",
    ),
    Row(
        family="kvscope_prompt_tokens_total",
        value=counter("sglang:prompt_tokens"),
        worth="passed through",
        reason="added when a request ends",
    ),
    Row(
        family="kvscope_generated_tokens_total",
        value=counter("sglang:generation_tokens"),
        worth="passed through",
        reason="added when a request ends",
    ),
    *(
        Row(
            family="kvscope_kv_pool_sizing_bytes",
            labels={"term": term},
            value=gauge(name) * _GIB,
            worth="passed through",
            reason="of one device, stated in GiB; the other terms are not told",
        )
        for term, name in (
            ("weights", "sglang:weight_memory_usage_gb"),
            ("kv_pool", "sglang:kv_cache_memory_usage_gb"),
        )
    ),
    *(
        Row(
            family="kvscope_kv_tier_hit_tokens_total",
            labels={"tier": tier},
            value=_effective(mode),
            reason=reason,
        )
        for tier, mode, reason in (
            ("device", "device_hit", ""),
            ("host", "host_hit", ""),
            ("other", "storage_hit", "storage of whatever kind"),
        )
    ),
    Row(
        family="kvscope_kv_tier_used_ratio",
        labels={"tier": "host"},
        value=gauge("sglang:hicache_host_used_tokens") / gauge("sglang:hicache_host_total_tokens"),
        worth="passed through",
        reason="with HiCache",
    ),
)

SGLANG = Table(
    server="sglang",
    rows=SGLANG_ROWS,
    identity=Identity(engine=("dp_rank",), ranks=("pp_rank", "tp_rank")),
    note="Before the first request most families are absent. A data-parallel rank is an engine; "
    "what the front end counts for several of them together has no label `engine`.",
    absent={
        "kvscope_requests_rejected_total": "num_aborted_requests_total does not say why",
    },
)
