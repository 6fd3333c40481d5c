"""Compatibility: vLLM's present names with vLLM's semantics and buckets."""

from typing import get_args

from exporter import buckets
from exporter.catalogue.metric import ENGINE, Metric
from exporter.catalogue.pool import STATE_EVENTS
from kvscope_events.events import FinishReason


def _request_seconds(name: str, help: str, source: tuple[str, ...]) -> Metric:
    return Metric(
        name=name,
        kind="histogram",
        help=help,
        unit="seconds",
        group="vllm",
        buckets=buckets.VLLM_REQUEST_SECONDS,
        source=source,
    )


def _request_tokens(name: str, help: str) -> Metric:
    return Metric(
        name=name,
        kind="histogram",
        help=f"{help} The buckets end at the longest sequence.",
        unit="tokens",
        group="vllm",
        buckets=buckets.VLLM_REQUEST_TOKENS,
        source=("RequestFinished",),
    )


VLLM = (
    Metric(
        name="vllm:num_requests_running",
        kind="gauge",
        help="Number of requests in model execution batches.",
        unit="requests",
        group="vllm",
        source=("StepCompleted",),
    ),
    Metric(
        name="vllm:num_requests_waiting",
        kind="gauge",
        help="Number of requests waiting to be processed, preempted ones included.",
        unit="requests",
        group="vllm",
        source=("StepCompleted",),
    ),
    Metric(
        name="vllm:kv_cache_usage_perc",
        kind="gauge",
        help="KV-cache usage: share of the blocks that requests reference, 0 to 1.",
        unit="ratio",
        group="vllm",
        source=STATE_EVENTS,
    ),
    Metric(
        name="vllm:prefix_cache_queries_total",
        kind="counter",
        help="Prefix cache queries in tokens, first admissions only.",
        unit="tokens",
        group="vllm",
        source=("PrefixLookup",),
    ),
    Metric(
        name="vllm:prefix_cache_hits_total",
        kind="counter",
        help="Prefix cache hits in tokens, first admissions only.",
        unit="tokens",
        group="vllm",
        source=("PrefixLookup",),
    ),
    Metric(
        name="vllm:num_preemptions_total",
        kind="counter",
        help="Cumulative number of preemptions, counted with the victim's next token.",
        unit="preemptions",
        group="vllm",
        source=("RequestPreempted", "StepCompleted", "RequestFinished"),
    ),
    Metric(
        name="vllm:prompt_tokens_total",
        kind="counter",
        help="Prompt lengths in tokens, added at the first token.",
        unit="tokens",
        group="vllm",
        source=("RequestArrived", "FirstToken"),
    ),
    Metric(
        name="vllm:generation_tokens_total",
        kind="counter",
        help="Number of generation tokens produced.",
        unit="tokens",
        group="vllm",
        source=("StepCompleted",),
    ),
    Metric(
        name="vllm:request_success_total",
        kind="counter",
        help="Count of finished requests by reason.",
        unit="requests",
        group="vllm",
        labels={**ENGINE, "finished_reason": (*get_args(FinishReason), "repetition")},
        source=("RequestFinished",),
    ),
    Metric(
        name="vllm:iteration_tokens_total",
        kind="histogram",
        help="Tokens per step with output: prompt tokens computed first time, and generated ones.",
        unit="tokens",
        group="vllm",
        buckets=buckets.VLLM_ITERATION_TOKENS,
        source=("RequestArrived", "RequestScheduled", "FirstToken", "StepCompleted"),
    ),
    _request_tokens("vllm:request_prompt_tokens", "Prompt tokens per finished request."),
    _request_tokens("vllm:request_generation_tokens", "Generated tokens per finished request."),
    _request_tokens(
        "vllm:request_max_num_generation_tokens",
        "Most generated tokens of any sequence of a finished request.",
    ),
    _request_tokens("vllm:request_params_max_tokens", "The max_tokens parameter of a request."),
    Metric(
        name="vllm:time_to_first_token_seconds",
        kind="histogram",
        help="Time to first token in seconds.",
        unit="seconds",
        group="vllm",
        buckets=buckets.VLLM_FIRST_TOKEN_SECONDS,
        source=("FirstToken",),
    ),
    Metric(
        name="vllm:inter_token_latency_seconds",
        kind="histogram",
        help="Inter-token latency in seconds.",
        unit="seconds",
        group="vllm",
        buckets=buckets.VLLM_INTER_TOKEN_SECONDS,
        source=("StepCompleted",),
    ),
    Metric(
        name="vllm:request_time_per_output_token_seconds",
        kind="histogram",
        help="Decode time per token after the first, once per finished request.",
        unit="seconds",
        group="vllm",
        buckets=buckets.VLLM_INTER_TOKEN_SECONDS,
        source=("RequestFinished",),
    ),
    _request_seconds(
        "vllm:e2e_request_latency_seconds", "Request latency in seconds.", ("RequestFinished",)
    ),
    _request_seconds(
        "vllm:request_queue_time_seconds",
        "Time in the queue before a request first ran, observed when it ended.",
        ("RequestFinished",),
    ),
    _request_seconds(
        "vllm:request_prefill_time_seconds",
        "Time from first run to first token, observed when a request ended.",
        ("RequestFinished",),
    ),
    _request_seconds(
        "vllm:request_decode_time_seconds",
        "Time from first to last token, observed when a request ended.",
        ("RequestFinished",),
    ),
    _request_seconds(
        "vllm:request_inference_time_seconds",
        "Time from first run to last token, observed when a request ended.",
        ("RequestFinished",),
    ),
    Metric(
        name="vllm:cache_config_info",
        kind="gauge",
        help="The cache configuration, as far as it is known, as labels of a 1.",
        unit="",
        group="vllm",
        labels=dict.fromkeys(
            (
                "engine",
                "block_size",
                "num_gpu_blocks",
                "enable_prefix_caching",
                "cache_dtype",
                "kv_cache_size_tokens",
                "kv_cache_max_concurrency",
                "gpu_memory_utilization",
                "prefix_caching_hash_algo",
            )
        ),
        source=("PoolCreated", "PoolSnapshot"),
    ),
)
