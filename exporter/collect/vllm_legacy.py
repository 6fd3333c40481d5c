"""vLLM's old names."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from exporter.collect.families import Families
from exporter.engine_info import EngineInfo
from exporter.fold import Latency, Ledger, Prefix, Requests


def collect_legacy_pool(families: Families, ledger: Ledger) -> Iterator[Family]:
    """Of the pool only while its state is known."""
    yield families.single("vllm:cpu_cache_usage_perc", 0.0)
    if ledger.known:
        yield families.single("vllm:gpu_cache_usage_perc", ledger.active_ratio)
        yield families.single("vllm:kv_cache_block_count", ledger.num_blocks)
        yield families.single("vllm:kv_cache_block_size", ledger.block_size)


def collect_legacy_prefix(
    families: Families, prefix: Prefix, engine: EngineInfo
) -> Iterator[Family]:
    queried, hit = prefix.queried_tokens["first"], prefix.hit_tokens["first"]
    rate = hit / queried if queried else 0.0
    if not engine.enable_prefix_caching:
        rate = -1.0
    yield families.single("vllm:gpu_prefix_cache_hit_rate", rate)
    yield families.single("vllm:gpu_prefix_cache_queries_total", queried)
    yield families.single("vllm:gpu_prefix_cache_hits_total", hit)


def collect_legacy_requests(families: Families, requests: Requests) -> Iterator[Family]:
    if requests.known:
        yield families.single("vllm:num_requests_swapped", requests.swapped)


def collect_legacy_latency(families: Families, latency: Latency) -> Iterator[Family]:
    yield families.histogram("vllm:time_per_output_token_seconds", latency.inter_token)
