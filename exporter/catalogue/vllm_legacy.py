"""Compatibility: names that vLLM once had, or that articles say it had."""

from exporter import buckets
from exporter.catalogue.metric import Metric
from exporter.catalogue.pool import STATE_EVENTS

VLLM_LEGACY = (
    Metric(
        name="vllm:gpu_cache_usage_perc",
        kind="gauge",
        help="Old name of vllm:kv_cache_usage_perc, until vLLM 0.11.",
        unit="ratio",
        group="vllm-legacy",
        source=STATE_EVENTS,
    ),
    Metric(
        name="vllm:cpu_cache_usage_perc",
        kind="gauge",
        help="Usage of a CPU swap space, until vLLM 0.8; 0, because there is none.",
        unit="ratio",
        group="vllm-legacy",
    ),
    Metric(
        name="vllm:num_requests_swapped",
        kind="gauge",
        help="Number of requests swapped to the CPU, until vLLM 0.8.",
        unit="requests",
        group="vllm-legacy",
        source=("StepCompleted",),
    ),
    Metric(
        name="vllm:gpu_prefix_cache_hit_rate",
        kind="gauge",
        help=(
            "Prefix cache hits over queries since the start, until vLLM 0.8; -1 with the cache "
            "off. Use the counters."
        ),
        unit="ratio",
        group="vllm-legacy",
        source=("PrefixLookup",),
    ),
    Metric(
        name="vllm:gpu_prefix_cache_queries_total",
        kind="counter",
        help="Old name of vllm:prefix_cache_queries_total, until vLLM 0.11.",
        unit="tokens",
        group="vllm-legacy",
        source=("PrefixLookup",),
    ),
    Metric(
        name="vllm:gpu_prefix_cache_hits_total",
        kind="counter",
        help="Old name of vllm:prefix_cache_hits_total, until vLLM 0.11.",
        unit="tokens",
        group="vllm-legacy",
        source=("PrefixLookup",),
    ),
    Metric(
        name="vllm:kv_cache_block_count",
        kind="gauge",
        help="Blocks in the pool; never a name of vLLM's, but articles show it.",
        unit="blocks",
        group="vllm-legacy",
        source=("PoolCreated", "PoolSnapshot"),
    ),
    Metric(
        name="vllm:kv_cache_block_size",
        kind="gauge",
        help="Tokens per block; never a name of vLLM's, but articles show it.",
        unit="tokens",
        group="vllm-legacy",
        source=("PoolCreated", "PoolSnapshot"),
    ),
    Metric(
        name="vllm:time_per_output_token_seconds",
        kind="histogram",
        help="Old name of vllm:inter_token_latency_seconds, until vLLM 0.14.",
        unit="seconds",
        group="vllm-legacy",
        buckets=buckets.VLLM_INTER_TOKEN_SECONDS,
        source=("StepCompleted",),
    ),
)
