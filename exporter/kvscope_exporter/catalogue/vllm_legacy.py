"""Compatibility: names that vLLM once had.

The one that nearly every article starts with is served with the current names: `vllm.py`.
"""

from kvscope_exporter.catalogue.metric import Metric
from kvscope_exporter.state import buckets

VLLM_LEGACY = (
    Metric(
        name="vllm:cpu_cache_usage_perc",
        kind="gauge",
        help="Usage of the CPU swap space, exposed until vLLM 0.8; 0 where the engine has none.",
        unit="ratio",
        group="vllm-legacy",
        events=("PoolCreated",),
    ),
    Metric(
        name="vllm:num_requests_swapped",
        kind="gauge",
        help="Number of sequences swapped to the CPU, exposed until vLLM 0.8.",
        unit="requests",
        group="vllm-legacy",
        events=("StepCompleted",),
    ),
    Metric(
        name="vllm:gpu_prefix_cache_queries_total",
        kind="counter",
        help="Former name of vllm:prefix_cache_queries_total, used until vLLM 0.11.",
        unit="tokens",
        group="vllm-legacy",
        events=("PrefixLookup", "PoolCreated"),
    ),
    Metric(
        name="vllm:gpu_prefix_cache_hits_total",
        kind="counter",
        help="Former name of vllm:prefix_cache_hits_total, used until vLLM 0.11.",
        unit="tokens",
        group="vllm-legacy",
        events=("PrefixLookup", "PoolCreated"),
    ),
    Metric(
        name="vllm:time_per_output_token_seconds",
        kind="histogram",
        help="Former name of vllm:inter_token_latency_seconds, used until vLLM 0.14.",
        unit="seconds",
        group="vllm-legacy",
        buckets=buckets.VLLM_INTER_TOKEN_SECONDS,
        events=("StepCompleted",),
    ),
)
