"""SGLang: names of `sglang:` with --enable-metrics.

Several ranks of one engine repeat each other: the lowest one counts. A data-parallel rank is an
engine. Its blocks are pages. Most families are absent before the first request.
"""

from kvscope_exporter.catalogue.http import STATUSES
from kvscope_exporter.scrape.labels import counter, gauge, histogram
from kvscope_exporter.scrape.row import Identity, Row, Table, last_step
from kvscope_exporter.scrape.value import Number, Value

_PAGE_SIZE = gauge("sglang:page_size")
_CAPACITY = gauge("sglang:max_total_num_tokens")
_USED = gauge("sglang:kv_used_tokens")
_CACHED = gauge("sglang:kv_evictable_tokens")
_FREE = gauge("sglang:kv_available_tokens")
_EFFECTIVE = counter("sglang:prefill_effective_tokens")
_GIB = Number(2**30)

_AS_SEQUENCES = "SGLang counts each of the n sequences of a call as a request: upper bound"
_AT_END = "older versions; counted when a request ends"
_IN_BUCKETS = "in SGLang's buckets"


_RESPONSES = counter("sglang:http_responses")
"""Has the responses to GET as well, those of its page of metrics among them."""
_API_ROWS = tuple(
    row
    for status in STATUSES
    for row in (
        Row(
            family="kvscope_api_responses_total",
            labels={"status": status},
            value=counter("sglang:http_responses", method="POST", status_code=f"{status[0]}*"),
            reason="all ranks together; a full queue (503) is in 5xx",
        ),
        Row(
            family="kvscope_api_responses_total",
            labels={"status": status},
            value=Number(0).beside(_RESPONSES),
            reason="until the first response of that class",
        ),
    )
)


def _effective(*modes: str) -> Value:
    return counter("sglang:prefill_effective_tokens", mode=modes)


SGLANG_ROWS = (
    Row(
        family="kvscope_kv_capacity_blocks",
        value=gauge("sglang:num_pages"),
        reason="a block is a page; SGLang reserves none",
    ),
    Row(family="kvscope_kv_capacity_blocks", value=_CAPACITY / _PAGE_SIZE),
    Row(family="kvscope_kv_usable_blocks", value=_CAPACITY / _PAGE_SIZE),
    Row(family="kvscope_kv_block_size_tokens", value=_PAGE_SIZE),
    Row(family="kvscope_kv_usable_tokens", value=_CAPACITY),
    Row(
        family="kvscope_kv_full_length_sequences",
        value=_CAPACITY / gauge("sglang:context_len"),
        reason="sequences of the context length",
    ),
    *(
        Row(
            family="kvscope_kv_blocks",
            labels={"state": state},
            value=tokens / _PAGE_SIZE,
            reason="pages that open sessions protect are in none of the three states",
        )
        for state, tokens in (("active", _USED), ("cached", _CACHED), ("free", _FREE))
    ),
    Row(family="kvscope_kv_active_ratio", value=_USED / _CAPACITY),
    Row(
        family="kvscope_kv_active_ratio",
        value=gauge("sglang:full_token_usage"),
        reason="the pool of full attention",
    ),
    Row(
        family="kvscope_kv_active_ratio",
        value=gauge("sglang:token_usage"),
        worth="bound",
        reason="upper bound: the fullest pool of a hybrid model, rounded to hundredths",
    ),
    Row(family="kvscope_kv_resident_ratio", value=(_USED + _CACHED) / _CAPACITY),
    Row(
        family="kvscope_prefix_cache_queried_tokens_total",
        labels={"phase": "first"},
        value=_effective("input", "device_hit", "host_hit", "storage_hit"),
        reason='mode="input" counts computed tokens only, so all modes are added',
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
        reason=f"{_AT_END}; absent before the first hit; all tiers together where the page has no "
        "tiers",
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
        reason="absent before the first retraction; the cause is not exported",
    ),
    Row(
        family="kvscope_preemption_discarded_tokens_total",
        labels={"mode": "recompute"},
        value=counter("sglang:num_retracted_input_tokens")
        + counter("sglang:num_retracted_output_tokens"),
        worth="bound",
        reason="upper bound: the lengths of retracted requests, not what they held",
    ),
    Row(
        family="kvscope_preemption_recomputed_tokens_total",
        labels={"mode": "recompute"},
        value=counter("sglang:realtime_tokens", mode="prefill_compute") - _effective("input"),
        reason="all computed tokens less those computed for the first time",
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
        reason="all reasons together, without the label",
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
    last_step(counter("sglang:realtime_tokens")),
    Row(
        family="kvscope_generated_tokens_total",
        value=counter("sglang:generation_tokens"),
        worth="passed through",
        reason="counted when a request ends",
    ),
    *(
        Row(
            family="kvscope_kv_pool_sizing_bytes",
            labels={"term": term},
            value=gauge(name) * _GIB,
            worth="passed through",
            reason="one device, exported in GiB; the other terms are not exported",
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
            ("other", "storage_hit", "storage of any kind"),
        )
    ),
    Row(
        family="kvscope_kv_tier_used_ratio",
        labels={"tier": "host"},
        value=gauge("sglang:hicache_host_used_tokens") / gauge("sglang:hicache_host_total_tokens"),
        worth="passed through",
        reason="only with HiCache",
    ),
)
"""Those of its engine, which other servers pass on as well."""

SGLANG = Table(
    server="sglang",
    rows=(*SGLANG_ROWS, *_API_ROWS),
    identity=Identity(engine=("dp_rank",), ranks=("pp_rank", "tp_rank")),
    note="Before the first request most families are absent. A data-parallel rank is an engine; "
    "families that the front end counts for several ranks together have no label `engine`.",
    absent={
        "kvscope_requests_rejected_total": "num_aborted_requests_total has no reason",
    },
)
