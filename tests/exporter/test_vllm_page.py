"""vLLM's names on the page: from which fold, over what, and as which text."""

from kvscope_events.events import PoolCreated, PrefixLookup
from tests.exporter.page import block_hash, ended, finished, make_exporter, put, step, value


def test_the_page_has_first_lookups_only_and_usage_without_cached_blocks() -> None:
    exporter, subscription = make_exporter()
    names = [block_hash(1), block_hash(2)]
    put(
        subscription,
        0,
        0,
        PoolCreated(9, 4, 64, 1),
        PrefixLookup(1, 9, names, 2),
        PrefixLookup(1, 12, names, 1, resumed=True),
        ended(1, reason="length"),
        finished(1, reason="length"),
        step(running=2, waiting=1),
    )
    expected = {
        "vllm:prefix_cache_queries_total": 9,
        "vllm:prefix_cache_hits_total": 8,
        "vllm:gpu_prefix_cache_queries_total": 9,
        "vllm:gpu_prefix_cache_hits_total": 8,
        "vllm:gpu_prefix_cache_hit_rate": 8 / 9,
        "vllm:kv_cache_usage_perc": 0,
        "vllm:gpu_cache_usage_perc": 0,
        "vllm:cpu_cache_usage_perc": 0,
        "vllm:num_requests_running": 2,
        "vllm:num_requests_waiting": 1,
        "vllm:num_requests_swapped": 0,
        "vllm:kv_cache_block_count": 9,
        "vllm:kv_cache_block_size": 4,
    }
    assert {name: value(exporter, name) for name in expected} == expected
    assert value(exporter, "vllm:request_success_total", finished_reason="length") == 1
    assert value(exporter, "vllm:request_success_total", finished_reason="repetition") == 0


def test_a_pool_without_a_block_to_hand_out_has_no_usage() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(1, 4, 64, 1), step())
    assert value(exporter, "vllm:gpu_cache_usage_perc") is None
    assert value(exporter, "vllm:kv_cache_usage_perc") is None
    assert value(exporter, "vllm:kv_cache_block_count") == 1
    assert value(exporter, "vllm:kv_cache_block_size") == 4
    for part in ("vllm", "vllm-legacy", "pool", "exhaustion"):
        assert value(exporter, "kvscope_collect_errors_total", part=part) == 0


def test_cache_config_info_says_what_is_known_as_text_and_names_no_model() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(100, 16, 64))
    (family,) = (f for f in exporter.registry.collect() if f.name == "vllm:cache_config_info")
    (sample,) = family.samples
    assert sample.labels == {
        "engine": "0",
        "block_size": "16",
        "num_gpu_blocks": "100",
        "enable_prefix_caching": "True",
        "cache_dtype": "auto",
        "kv_cache_size_tokens": "1600",
        "kv_cache_max_concurrency": str(1600 / 131_072),
        "gpu_memory_utilization": "0.9",
    }
