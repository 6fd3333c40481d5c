"""Compatibility: vLLM's current names with vLLM's semantics and buckets.

vLLM makes each sequence of a call a request of its own, so its "requests" are our sequences.
"""

from typing import get_args

from exporter import buckets
from exporter.catalogue.metric import ENGINE, Metric
from exporter.catalogue.pool import STATE_EVENTS
from kvscope_events.vocabulary import FinishReason


def _request_seconds(
    name: str, help: str, bounds: tuple[float, ...] = buckets.VLLM_REQUEST_SECONDS
) -> Metric:
    return Metric(
        name=name,
        kind="histogram",
        help=help,
        unit="seconds",
        group="vllm",
        buckets=bounds,
        events=("SequenceFinished",),
    )


_SUM_ALONE = ()
"""Bounds of what vLLM's own boards read the sum of, if anything: each bound is a series, and a page
has less than 600."""


def _request_tokens(name: str, help: str) -> Metric:
    return Metric(
        name=name,
        kind="histogram",
        help=f"{help} The buckets end at the longest sequence of the model.",
        unit="tokens",
        group="vllm",
        buckets=buckets.VLLM_REQUEST_TOKENS,
        events=("SequenceFinished",),
    )


VLLM = (
    Metric(
        name="vllm:num_requests_running",
        kind="gauge",
        help="Number of sequences in model execution batches.",
        unit="requests",
        group="vllm",
        events=("StepCompleted", "SequenceFinished"),
    ),
    Metric(
        name="vllm:num_requests_waiting",
        kind="gauge",
        help="Number of sequences waiting to be processed, preempted ones included.",
        unit="requests",
        group="vllm",
        events=("StepCompleted", "SequenceAdded", "SequenceFinished"),
    ),
    Metric(
        name="vllm:kv_cache_usage_perc",
        kind="gauge",
        help="KV-cache usage: share of the usable blocks that sequences reference, 0 to 1.",
        unit="ratio",
        group="vllm",
        events=STATE_EVENTS,
    ),
    Metric(
        name="vllm:prefix_cache_queries_total",
        kind="counter",
        help="Tokens that the prefix cache was queried for, at first admissions only.",
        unit="tokens",
        group="vllm",
        events=("PrefixLookup", "PoolCreated"),
    ),
    Metric(
        name="vllm:prefix_cache_hits_total",
        kind="counter",
        help="Tokens that the prefix cache held, at first admissions only.",
        unit="tokens",
        group="vllm",
        events=("PrefixLookup", "PoolCreated"),
    ),
    Metric(
        name="vllm:num_preemptions_total",
        kind="counter",
        help="Preemptions, counted when the preempted sequence produces its next token.",
        unit="preemptions",
        group="vllm",
        events=("RequestPreempted", "StepCompleted", "SequenceFinished"),
    ),
    Metric(
        name="vllm:prompt_tokens_total",
        kind="counter",
        help="Prompt tokens of all sequences, added when a sequence produces its first token.",
        unit="tokens",
        group="vllm",
        events=("SequenceAdded", "StepCompleted"),
    ),
    Metric(
        name="vllm:generation_tokens_total",
        kind="counter",
        help="Tokens generated.",
        unit="tokens",
        group="vllm",
        events=("StepCompleted",),
    ),
    Metric(
        name="vllm:request_success_total",
        kind="counter",
        help="Sequences that ended, by reason; repetition stays 0, for no engine reports it.",
        unit="requests",
        group="vllm",
        labels={**ENGINE, "finished_reason": (*get_args(FinishReason), "repetition")},
        events=("SequenceFinished",),
    ),
    Metric(
        name="vllm:iteration_tokens_total",
        kind="histogram",
        help="Tokens of each step with output: the prompt tokens computed for sequences that "
        "produced their first token, and the tokens generated.",
        unit="tokens",
        group="vllm",
        buckets=buckets.VLLM_ITERATION_TOKENS,
        events=("SequenceAdded", "PoolCreated", "StepCompleted"),
    ),
    _request_tokens("vllm:request_prompt_tokens", "Prompt tokens of each sequence that ended."),
    _request_tokens(
        "vllm:request_generation_tokens", "Generated tokens of each sequence that ended."
    ),
    Metric(
        name="vllm:request_max_num_generation_tokens",
        kind="histogram",
        help="Generated tokens of the longest sequence of each request that ended.",
        unit="tokens",
        group="vllm",
        buckets=_SUM_ALONE,
        events=("SequenceFinished", "RequestFinished"),
    ),
    Metric(
        name="vllm:request_params_max_tokens",
        kind="histogram",
        help="Value of max_tokens of each sequence that ended.",
        unit="tokens",
        group="vllm",
        buckets=_SUM_ALONE,
        events=("SequenceFinished",),
    ),
    Metric(
        name="vllm:time_to_first_token_seconds",
        kind="histogram",
        help="Time from arrival to the first token of each sequence.",
        unit="seconds",
        group="vllm",
        buckets=buckets.VLLM_FIRST_TOKEN_SECONDS,
        events=("SequenceAdded", "FirstToken", "StepCompleted"),
    ),
    Metric(
        name="vllm:inter_token_latency_seconds",
        kind="histogram",
        help="Time between consecutive tokens of a sequence.",
        unit="seconds",
        group="vllm",
        buckets=buckets.VLLM_INTER_TOKEN_SECONDS,
        events=("StepCompleted",),
    ),
    Metric(
        name="vllm:request_time_per_output_token_seconds",
        kind="histogram",
        help="Decode time of each sequence that ended, divided by its tokens after the first.",
        unit="seconds",
        group="vllm",
        buckets=buckets.VLLM_INTER_TOKEN_SECONDS,
        events=("SequenceFinished",),
    ),
    _request_seconds(
        "vllm:e2e_request_latency_seconds",
        "Time from arrival to the end of each sequence.",
    ),
    _request_seconds(
        "vllm:request_queue_time_seconds",
        "Time from arrival until each sequence first ran, observed when it ended.",
    ),
    _request_seconds(
        "vllm:request_prefill_time_seconds",
        "Time from the first run to the first token of each sequence, observed when it ended.",
        _SUM_ALONE,
    ),
    _request_seconds(
        "vllm:request_decode_time_seconds",
        "Time from the first to the last token of each sequence, observed when it ended.",
        _SUM_ALONE,
    ),
    _request_seconds(
        "vllm:request_inference_time_seconds",
        "Time from the first run to the last token of each sequence, observed when it ended.",
        _SUM_ALONE,
    ),
    Metric(
        name="vllm:cache_config_info",
        kind="gauge",
        help="Configuration of the cache as labels, as far as it is known; the value is 1.",
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
        events=("PoolCreated",),
    ),
)
