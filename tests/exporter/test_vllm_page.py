"""vLLM's names on the page: from which fold, over what, and as which text."""

import pytest

from kvscope_events.events import FirstToken, PoolCreated, PrefixLookup, SequenceAdded
from kvscope_events.producers import VLLM_EVENTS
from kvscope_exporter.catalogue import CATALOGUE, Metric
from tests.exporter.page import (
    block_hash,
    ended,
    families,
    finished,
    hello,
    make_exporter,
    put,
    step,
    value,
)


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
        "vllm:kv_cache_usage_perc": 0,
        "vllm:gpu_cache_usage_perc": 0,
        "vllm:cpu_cache_usage_perc": 0,
        "vllm:num_requests_running": 2,
        "vllm:num_requests_waiting": 1,
        "vllm:num_requests_swapped": 0,
    }
    assert {name: value(exporter, name) for name in expected} == expected
    assert value(exporter, "vllm:request_success_total", finished_reason="length") == 1
    assert value(exporter, "vllm:request_success_total", finished_reason="repetition") == 0


def test_a_pool_without_a_block_to_hand_out_has_no_usage() -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(1, 4, 64, 1), step())
    assert value(exporter, "vllm:gpu_cache_usage_perc") is None
    assert value(exporter, "vllm:kv_cache_usage_perc") is None
    assert value(exporter, "kvscope_kv_capacity_blocks") == 1
    assert value(exporter, "kvscope_collect_errors_total") == 0


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


def test_our_engine_is_awake_while_it_takes_requests_and_down_otherwise() -> None:
    exporter, subscription = make_exporter()
    states = ("awake", "weights_offloaded", "discard_all")

    def shown() -> list[float | None]:
        return [value(exporter, "vllm:engine_sleep_state", sleep_state=state) for state in states]

    assert shown() == [1, 0, 0]
    put(subscription, 0, 0, hello(ready=False))
    assert shown() == [None, None, None]


def test_prompt_tokens_by_source_sum_to_the_prompts_at_the_first_token() -> None:
    exporter, subscription = make_exporter()
    put(
        subscription,
        0,
        0,
        PoolCreated(9, 4, 64, 1),
        SequenceAdded(1, 1, 9, 8),
        PrefixLookup(1, 9, [block_hash(1), block_hash(2)], 2),
        FirstToken(1, 5),
        step(waiting=3, emitted=[1], first_tokens=[1]),
    )
    by_source = {
        source: value(exporter, "vllm:prompt_tokens_by_source_total", source=source)
        for source in ("local_compute", "local_cache_hit", "external_kv_transfer")
    }
    assert by_source == {"local_compute": 1, "local_cache_hit": 8, "external_kv_transfer": 0}
    assert value(exporter, "vllm:prompt_tokens_cached_total") == 8
    assert value(exporter, "vllm:prompt_tokens_cached_by_source_total", source="device") == 8
    for reason, number in (("capacity", 3), ("deferred", 0)):
        assert value(exporter, "vllm:num_requests_waiting_by_reason", reason=reason) == number


NOT_OF_AN_OBSERVED_VLLM = [row for row in CATALOGUE if row.servers and "vllm" not in row.servers]


@pytest.mark.parametrize("row", NOT_OF_AN_OBSERVED_VLLM, ids=lambda row: row.name)
def test_what_only_vllms_own_page_tells_is_not_claimed_of_an_observed_vllm(row: Metric) -> None:
    exporter, subscription = make_exporter()
    put(subscription, 0, 0, PoolCreated(9, 4, 64, 1), step())
    assert row.family in families(exporter)
    put(subscription, 1, 0, hello(server="vllm", tells=sorted(VLLM_EVENTS)), step())
    assert row.family not in families(exporter)
    assert "vllm:prompt_tokens" in families(exporter)
