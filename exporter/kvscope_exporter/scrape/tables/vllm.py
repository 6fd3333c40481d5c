"""vLLM, 0.6 to 0.33: its own names; see https://docs.vllm.ai/en/latest/usage/metrics.html.

One series per data-parallel rank, whose number is the label `engine`. The gauges are those of the
last step, so a hung engine keeps its last ones.
"""

from kvscope_exporter.catalogue.http import STATUSES
from kvscope_exporter.scrape.labels import count_of, counter, gauge, histogram, label
from kvscope_exporter.scrape.row import Identity, Row, Table, last_step
from kvscope_exporter.scrape.value import Engines, IfPlain, Number, Value, Whole

_USAGE = gauge("vllm:kv_cache_usage_perc")
_USAGE_OLD = gauge("vllm:gpu_cache_usage_perc")
_BLOCKS = Whole(label("vllm:cache_config_info", "num_gpu_blocks") / Engines())
_BLOCK_SIZE = label("vllm:cache_config_info", "block_size")
_USABLE = _BLOCKS - Number(1)  # block 0 is the null block, which is never handed out
_TOKENS = label("vllm:cache_config_info", "kv_cache_size_tokens")
_FITTING = label("vllm:cache_config_info", "kv_cache_max_concurrency")


def _of_pool(plain: Value, exported: Value) -> Value:
    """exported: vLLM's own figure, which counts the null block in; right for every pool."""
    return IfPlain(plain, exported, _BLOCKS, _BLOCK_SIZE, _TOKENS, _FITTING)


_SHARED_OUT = (
    "vLLM exports the sum over its data-parallel ranks; with several ranks this is their mean"
)
_AS_SEQUENCES = "vLLM counts each of the n sequences of a call as a request: upper bound"
_BY_GROUPS = (
    "before 0.24; upper bound: with several KV cache groups the blocks are divided among them"
)
_TOLD = (
    "with one KV cache group of full attention exact, without the null block; else vLLM's own "
    "figure, which counts it in; since 0.24"
)
_OLD_ENGINE = "with the older name only; upper bound, since such an engine may reserve one block"
_LATE = (
    "lower bound: counted at the next token of the preempted sequence, so never if it is aborted "
    "before that"
)
_FRONT_END = "measured by the front end, from the arrival there, in vLLM's buckets"
_OWN_BUCKETS = "in vLLM's buckets"
_BY_SOURCE = counter("vllm:prompt_tokens_cached_by_source")
_SOURCES = {
    "device": "device",
    "host": "host",
    "disk": "disk",
    "remote": "p2p",
    "other": "external_unspecified",
}
_FINISHED = {
    "stop": ("stop", "repetition"),
    "length": ("length",),
    "error": ("error",),
}

_STARTED = Row(
    family="kvscope_server_start_time_seconds",
    value=gauge("process_start_time_seconds"),
    reason="of the API server's process; absent with several API servers",
)
_INSTRUMENTED = count_of("http_request_duration_highr_seconds")
"""Has no labels, so it is on the page from the start; status classes appear later."""
_API_ROWS = tuple(
    row
    for status in STATUSES
    for row in (
        Row(
            family="kvscope_api_responses_total",
            labels={"status": status},
            value=counter("http_requests", method="POST", status=status),
            reason="all ranks together; 503 is a full queue as well, and 429 is in 4xx",
        ),
        Row(
            family="kvscope_api_responses_total",
            labels={"status": status},
            value=Number(0).beside(_INSTRUMENTED),
            reason="until the first response of that class",
        ),
    )
)

VLLM_ROWS = (
    Row(family="kvscope_kv_capacity_blocks", value=_BLOCKS, reason=_SHARED_OUT),
    Row(
        family="kvscope_kv_block_size_tokens",
        value=_BLOCK_SIZE,
        reason="the smallest, where KV cache groups have different block sizes",
    ),
    Row(
        family="kvscope_kv_usable_blocks",
        value=_USABLE.beside(_USAGE),
        reason="without the null block",
    ),
    Row(
        family="kvscope_kv_usable_blocks",
        value=_BLOCKS.beside(_USAGE_OLD),
        worth="bound",
        reason=_OLD_ENGINE,
    ),
    Row(
        family="kvscope_kv_usable_tokens",
        value=_of_pool(_USABLE * _BLOCK_SIZE, _TOKENS).beside(_USAGE),
        worth="passed through",
        reason=_TOLD,
    ),
    Row(
        family="kvscope_kv_usable_tokens",
        value=(_USABLE * _BLOCK_SIZE).beside(_USAGE),
        worth="bound",
        reason=_BY_GROUPS,
    ),
    Row(
        family="kvscope_kv_full_length_sequences",
        value=_of_pool(_FITTING * _USABLE / _BLOCKS, _FITTING),
        worth="passed through",
        reason=_TOLD,
    ),
    Row(
        family="kvscope_kv_blocks",
        labels={"state": "active"},
        value=Whole(_USAGE * _USABLE),
        reason="vLLM exports cached and free blocks as one number, so states cached and free are "
        "absent; active is absent as well where pools of ranks differ in size",
    ),
    Row(family="kvscope_kv_active_ratio", value=_USAGE),
    Row(family="kvscope_kv_active_ratio", value=_USAGE_OLD, reason="the older name, 0.6 to 0.11"),
    Row(
        family="kvscope_prefix_cache_queried_tokens_total",
        labels={"phase": "first"},
        value=counter("vllm:prefix_cache_queries"),
        reason="up to 0.26 each retried admission counts once more",
    ),
    Row(
        family="kvscope_prefix_cache_hit_tokens_total",
        labels={"phase": "first"},
        value=counter("vllm:prefix_cache_hits"),
        reason="up to 0.26 each retried admission counts once more",
    ),
    *(
        Row(
            family="kvscope_requests",
            labels={"state": state},
            value=gauge(f"vllm:num_requests_{state}"),
            worth="bound",
            reason=_AS_SEQUENCES,
        )
        for state in ("waiting", "running")
    ),
    *(
        Row(
            family="kvscope_sequences",
            labels={"state": state},
            value=gauge(f"vllm:num_requests_{state}"),
        )
        for state in ("waiting", "running")
    ),
    *(
        Row(
            family="kvscope_requests_finished_total",
            labels={"reason": reason},
            value=counter("vllm:request_success", finished_reason=theirs),
            worth="passed through",
            reason="counts sequences, not calls; repetition is in stop. abort is absent: vLLM "
            "counts no request whose client has left",
        )
        for reason, theirs in _FINISHED.items()
    ),
    Row(
        family="kvscope_requests_rejected_total",
        labels={"reason": "queue_full"},
        value=counter(
            "vllm:admission_rejections",
            reason=("max_num_queued_reqs", "max_num_queued_tokens"),
        ),
        reason="all ranks together; since 0.32",
    ),
    Row(
        family="kvscope_preemptions_total",
        labels={"mode": "recompute"},
        value=counter("vllm:num_preemptions"),
        worth="bound",
        reason=_LATE,
    ),
    Row(
        family="kvscope_time_to_first_token_seconds",
        value=histogram("vllm:time_to_first_token_seconds"),
        worth="passed through",
        reason=_FRONT_END,
    ),
    Row(
        family="kvscope_inter_token_latency_seconds",
        value=histogram("vllm:inter_token_latency_seconds"),
        worth="passed through",
        reason="between outputs, which can have several tokens each, in vLLM's buckets",
    ),
    Row(
        family="kvscope_inter_token_latency_seconds",
        value=histogram("vllm:time_per_output_token_seconds"),
        worth="passed through",
        reason="the older name, up to 0.14",
    ),
    Row(
        family="kvscope_request_duration_seconds",
        value=histogram("vllm:e2e_request_latency_seconds"),
        worth="passed through",
        reason=_FRONT_END,
    ),
    Row(
        family="kvscope_request_queue_seconds",
        value=histogram("vllm:request_queue_time_seconds"),
        worth="passed through",
        reason=f"observed when the request ends, {_OWN_BUCKETS}",
    ),
    last_step(count_of("vllm:iteration_tokens_total")),
    Row(family="kvscope_generated_tokens_total", value=counter("vllm:generation_tokens")),
    *(
        Row(
            family="kvscope_kv_tier_hit_tokens_total",
            labels={"tier": tier},
            value=counter("vllm:prompt_tokens_cached_by_source", source=source),
            reason="since 0.32",
        )
        for tier, source in _SOURCES.items()
    ),
    Row(
        family="kvscope_kv_tier_hit_tokens_total",
        labels={"tier": "device"},
        value=counter("vllm:prefix_cache_hits").without(_BY_SOURCE),
        reason="before 0.32; without hits in other tiers",
    ),
    Row(
        family="kvscope_kv_tier_hit_tokens_total",
        labels={"tier": "other"},
        value=counter("vllm:external_prefix_cache_hits").without(_BY_SOURCE),
        worth="passed through",
        reason="before 0.32; all tiers below the device's pool together",
    ),
    Row(
        family="kvscope_kv_tier_queried_tokens_total",
        labels={"tier": "other"},
        value=counter("vllm:external_prefix_cache_queries"),
        worth="passed through",
        reason="all tiers below the device's pool together",
    ),
)

VLLM = Table(
    server="vllm",
    rows=(*VLLM_ROWS, _STARTED, *_API_ROWS),
    identity=Identity(),
    note="A data-parallel rank is an engine. NVIDIA NIM has the same names without `vllm:`, which "
    "are read as well. Gauges are those of the last step: an engine that "
    "hangs keeps exporting them.",
    front_end={
        "kvscope_time_to_first_token_seconds": ((),),
        "kvscope_request_duration_seconds": ((),),
        "kvscope_requests_finished_total": (
            *((reason,) for reason in _FINISHED),
            ("stop_string_or_abort",),  # the front end knows the strings
        ),
    },
    absent={
        "kvscope_kv_resident_ratio": "vLLM counts cached blocks as free",
        "kvscope_kv_block_evictions_total": "kv_block_* are sampled, and count blocks without "
        "content as well",
        "kvscope_preemption_discarded_tokens_total": "vLLM does not export it",
        "kvscope_preemption_recomputed_tokens_total": "vLLM does not export it",
        "kvscope_step_tokens_total": "iteration_tokens_total leaves out recomputed tokens",
        "kvscope_kv_tier_used_ratio": "kv_offload_cpu_cache_usage_perc covers only what "
        "transfers pin",
    },
)
