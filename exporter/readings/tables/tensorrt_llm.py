"""TensorRT-LLM: trtllm-serve's `trtllm_*`, and the Triton backend's `nv_trt_llm_*`.

trtllm-serve needs `return_perf_metrics` for families of requests and `enable_iter_perf_stats` for
those of steps; without them they are absent or stay at 0.
"""

from exporter.readings.labels import counter, gauge, histogram
from exporter.readings.row import Identity, Row, Table
from exporter.readings.value import Value

_MAX = gauge("trtllm:kv_cache_max_blocks")
_USED = gauge("trtllm:kv_cache_used_blocks")
_REUSED = counter("trtllm:kv_cache_reused_blocks")
_MISSED = counter("trtllm:kv_cache_missed_blocks")
_TOKENS_PER_BLOCK = gauge("trtllm:kv_cache_tokens_per_block")

_REFERENCED = "blocks that sequences reference, by its documentation"
_AT_END = "counted when a request ends"
_IN_BUCKETS = "without zeros, in TensorRT-LLM's buckets"
_TIERS = {
    "device": ("gpu", "device"),
    "host": ("cpu", "host"),
    "disk": ("disk",),
    "remote": ("remote",),
}
_FINISHED = {"stop": ("stop",), "length": ("length",), "abort": ("cancelled", "timeout")}


def _triton(kind: str) -> Value:
    return gauge("nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type=kind)


_SERVE = (
    Row(family="kvscope_kv_capacity_blocks", value=_MAX),
    Row(family="kvscope_kv_usable_blocks", value=_MAX),
    Row(family="kvscope_kv_block_size_tokens", value=_TOKENS_PER_BLOCK),
    Row(family="kvscope_kv_usable_tokens", value=_MAX * _TOKENS_PER_BLOCK),
    Row(
        family="kvscope_kv_blocks",
        labels={"state": "active"},
        value=_USED,
        worth="passed through",
        reason=f"{_REFERENCED}; free and cached blocks are one number, so these states are absent",
    ),
    Row(
        family="kvscope_kv_active_ratio",
        value=_USED / _MAX,
        worth="passed through",
        reason=_REFERENCED,
    ),
    Row(
        family="kvscope_kv_active_ratio",
        value=gauge("trtllm:kv_cache_utilization"),
        worth="passed through",
        reason=_REFERENCED,
    ),
    Row(
        family="kvscope_kv_block_allocations_total",
        labels={"cause": "decode"},
        value=counter("trtllm:kv_cache_gen_alloc_blocks"),
        reason="allocations of decode only; others are not exported",
    ),
    Row(
        family="kvscope_prefix_cache_queried_tokens_total",
        labels={"phase": "first"},
        value=counter("trtllm:prompt_tokens").beside(counter("trtllm:prompt_cached_tokens")),
        worth="passed through",
        reason=_AT_END,
    ),
    Row(
        family="kvscope_prefix_cache_hit_tokens_total",
        labels={"phase": "first"},
        value=counter("trtllm:prompt_cached_tokens"),
        worth="passed through",
        reason=_AT_END,
    ),
    Row(
        family="kvscope_prefix_cache_queried_blocks_total",
        value=_REUSED + _MISSED,
        worth="passed through",
        reason="warm-up included; the phase is not exported",
    ),
    Row(
        family="kvscope_prefix_cache_hit_blocks_total",
        value=_REUSED,
        worth="passed through",
        reason="warm-up included; the phase is not exported",
    ),
    *(
        Row(
            family="kvscope_requests",
            labels={"state": state},
            value=gauge(f"trtllm:num_requests_{state}"),
        )
        for state in ("waiting", "running")
    ),
    *(
        Row(
            family="kvscope_requests_finished_total",
            labels={"reason": reason},
            value=counter("trtllm:request_success", finished_reason=theirs),
            worth="passed through",
            reason="counts sequences, not calls",
        )
        for reason, theirs in _FINISHED.items()
    ),
    Row(
        family="kvscope_time_to_first_token_seconds",
        value=histogram("trtllm:time_to_first_token_seconds"),
        worth="passed through",
        reason=_IN_BUCKETS,
    ),
    Row(
        family="kvscope_inter_token_latency_seconds",
        value=histogram("trtllm:time_per_output_token_seconds"),
        worth="passed through",
        reason=f"one mean per request, which hides pauses; {_IN_BUCKETS}",
    ),
    Row(
        family="kvscope_request_duration_seconds",
        value=histogram("trtllm:e2e_request_latency_seconds"),
        worth="passed through",
        reason=_IN_BUCKETS,
    ),
    Row(
        family="kvscope_request_queue_seconds",
        value=histogram("trtllm:request_queue_time_seconds"),
        worth="passed through",
        reason=_IN_BUCKETS,
    ),
    Row(
        family="kvscope_prompt_tokens_total",
        value=counter("trtllm:prompt_tokens"),
        reason=_AT_END,
    ),
    Row(
        family="kvscope_generated_tokens_total",
        value=counter("trtllm:generation_tokens"),
        reason=_AT_END,
    ),
    *(
        Row(
            family="kvscope_kv_tier_hit_tokens_total",
            labels={"tier": tier},
            value=counter("trtllm:prompt_cache_hit_tokens", cache_tier=theirs),
            worth="passed through",
            reason=_AT_END,
        )
        for tier, theirs in _TIERS.items()
    ),
    Row(
        family="kvscope_kv_tier_used_ratio",
        labels={"tier": "host"},
        value=gauge("trtllm:kv_cache_host_utilization"),
        worth="passed through",
        reason="only where a host tier is configured",
    ),
)

_TRITON = (
    Row(family="kvscope_kv_capacity_blocks", value=_triton("max")),
    Row(family="kvscope_kv_usable_blocks", value=_triton("max")),
    Row(family="kvscope_kv_block_size_tokens", value=_triton("tokens_per")),
    Row(family="kvscope_kv_usable_tokens", value=_triton("max") * _triton("tokens_per")),
    Row(
        family="kvscope_kv_blocks",
        labels={"state": "active"},
        value=_triton("used"),
        worth="passed through",
        reason=_REFERENCED,
    ),
    Row(
        family="kvscope_kv_active_ratio",
        value=_triton("used") / _triton("max"),
        worth="passed through",
        reason="used divided by max; its own fraction contradicts them in the documentation",
    ),
    *(
        Row(
            family="kvscope_requests",
            labels={"state": state},
            value=gauge("nv_trt_llm_request_metrics", request_type=theirs),
            worth="passed through",
            reason="Triton backend; running is what it has scheduled",
        )
        for state, theirs in (("waiting", "waiting"), ("running", "scheduled"))
    ),
)

TENSORRT_LLM_ROWS = _SERVE
TENSORRT_LLM = Table(
    server="tensorrt-llm",
    rows=(*_SERVE, *_TRITON),
    identity=Identity(model_name=("model_name", "model")),
    absent={
        "kvscope_kv_resident_ratio": "TensorRT-LLM counts cached blocks as free",
        "kvscope_preemptions_total": "num_paused_requests is a gauge of a state, not a count",
        "kvscope_step_duration_seconds": "iteration_latency_seconds is a gauge of the last step",
        "kvscope_kv_block_evictions_total": "only its own events have it",
        "kvscope_requests_rejected_total": "request_error_total has HTTP status codes, not reasons",
    },
)
