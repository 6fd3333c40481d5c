"""vLLM's current names, and a former one, each from the fold that has the value."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.collect.families import Families
from kvscope_exporter.state import Cache, HelloTracker, Latency, Ledger, Requests, Vllm, buckets
from kvscope_exporter.state.capacity import block_tokens, is_plain


def collect_vllm_engine(families: Families, _fold: HelloTracker, engine: Hello) -> Iterator[Family]:
    """No state for an engine that does not take requests: to dashboards it is down, not asleep."""
    if engine.ready:
        states = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
        yield families.column("vllm:engine_sleep_state", states)


def collect_vllm_pool(families: Families, ledger: Ledger, engine: Hello) -> Iterator[Family]:
    """The state of the pool; no families while it is unknown."""
    if not ledger.known:
        return
    if ledger.num_usable:
        yield families.single("vllm:kv_cache_usage_perc", ledger.active_ratio)
        yield families.single("vllm:gpu_cache_usage_perc", ledger.active_ratio)
    # vLLM counts its null block; if the server reports its own figures, these are shown.
    tokens, sequences = ledger.size_tokens, ledger.longest_sequences
    if is_plain(ledger.groups):
        tokens = ledger.num_blocks * ledger.block_size if tokens is None else tokens
        if sequences is None and engine.max_model_len:
            sequences = tokens / engine.max_model_len
    facts = {
        "block_size": block_tokens(ledger),
        "num_gpu_blocks": ledger.num_blocks,
        "enable_prefix_caching": engine.enable_prefix_caching,
        "cache_dtype": engine.cache_dtype,
        "kv_cache_size_tokens": tokens,
        "kv_cache_max_concurrency": sequences,
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "prefix_caching_hash_algo": engine.prefix_caching_hash_algo,
    }
    yield families.fact(
        "vllm:cache_config_info",
        {label: str(value) for label, value in facts.items() if value is not None},
    )


def collect_vllm_prefix(families: Families, cache: Cache, _engine: Hello) -> Iterator[Family]:
    queried, hit = cache.queried_tokens["first"], cache.hit_tokens["first"]
    yield families.single("vllm:prefix_cache_queries_total", queried)
    yield families.single("vllm:prefix_cache_hits_total", hit)
    yield families.column("vllm:prompt_tokens_cached_by_source_total", {"device": hit})


def collect_vllm_requests(
    families: Families, requests: Requests, _engine: Hello
) -> Iterator[Family]:
    """Counts of sequences, each of which is a request of its own in vLLM's scheduler."""
    if requests.known:
        yield families.single("vllm:num_requests_running", requests.sequences_running)
        waiting = requests.sequences_waiting
        yield families.single("vllm:num_requests_waiting", waiting)
        reasons = {"capacity": waiting, "deferred": 0}
        yield families.column("vllm:num_requests_waiting_by_reason", reasons)


def collect_vllm_latency(families: Families, latency: Latency, _engine: Hello) -> Iterator[Family]:
    yield families.histogram("vllm:inter_token_latency_seconds", latency.inter_output)


def collect_vllm(families: Families, vllm: Vllm, engine: Hello) -> Iterator[Family]:
    longest = engine.max_model_len
    tokens = None if longest is None else buckets.up_to(buckets.VLLM_REQUEST_TOKENS, longest)
    yield families.single("vllm:num_preemptions_total", vllm.preemptions)
    yield families.single("vllm:prompt_tokens_total", vllm.prompt_tokens)
    found, loaded = vllm.cached_tokens, vllm.loaded_tokens
    sources = {
        "local_compute": vllm.prompt_tokens - found,
        "local_cache_hit": found - loaded,
        "external_kv_transfer": loaded,
    }
    yield families.column("vllm:prompt_tokens_by_source_total", sources)
    yield families.single("vllm:prompt_tokens_cached_total", found)
    yield families.single("vllm:generation_tokens_total", vllm.generation_tokens)
    yield families.histogram("vllm:iteration_tokens_total", vllm.iteration_tokens)
    for name, histogram in (
        ("vllm:request_prompt_tokens", vllm.request_prompt_tokens),
        ("vllm:request_generation_tokens", vllm.request_generation_tokens),
    ):
        yield families.histogram(name, histogram, tokens)
    yield families.summary("vllm:request_prefill_kv_computed_tokens", vllm.request_computed_tokens)
    yield families.summary("vllm:request_max_num_generation_tokens", vllm.request_longest_tokens)
    yield families.column("vllm:request_success_total", vllm.finished)
    yield families.histogram("vllm:time_to_first_token_seconds", vllm.first_token)
    yield families.histogram("vllm:e2e_request_latency_seconds", vllm.duration)
    yield families.histogram(
        "vllm:request_time_per_output_token_seconds", vllm.time_per_output_token
    )
    yield families.histogram("vllm:request_queue_time_seconds", vllm.queue)
    yield families.summary("vllm:request_prefill_time_seconds", vllm.prefill)
    yield families.summary("vllm:request_decode_time_seconds", vllm.decode)
