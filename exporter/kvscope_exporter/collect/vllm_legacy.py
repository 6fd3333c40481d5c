"""vLLM's former names, except the one that is served with the current ones."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.collect.families import Families
from kvscope_exporter.state import Cache, Latency, Ledger, Requests


def collect_legacy_pool(families: Families, ledger: Ledger, _engine: Hello) -> Iterator[Family]:
    """Families of the pool only while its state is known."""
    if ledger.known:
        swap = min(ledger.swap_used / ledger.swap_blocks, 1.0) if ledger.swap_blocks else 0.0
        yield families.single("vllm:cpu_cache_usage_perc", swap)


def collect_legacy_prefix(families: Families, cache: Cache, _engine: Hello) -> Iterator[Family]:
    yield families.single("vllm:gpu_prefix_cache_queries_total", cache.queried_tokens["first"])
    yield families.single("vllm:gpu_prefix_cache_hits_total", cache.hit_tokens["first"])


def collect_legacy_requests(
    families: Families, requests: Requests, _engine: Hello
) -> Iterator[Family]:
    if requests.known:
        yield families.single("vllm:num_requests_swapped", requests.sequences_swapped)


def collect_legacy_latency(
    families: Families, latency: Latency, _engine: Hello
) -> Iterator[Family]:
    yield families.histogram("vllm:time_per_output_token_seconds", latency.inter_output)
