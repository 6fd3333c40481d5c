"""vLLM's counting, not ours: with the next token, at the first token, first lookups only."""

import pytest

from kvscope_events.events import (
    FirstToken,
    PoolCreated,
    PrefixLookup,
    RequestArrived,
    RequestPreempted,
    RequestResumed,
    RequestScheduled,
)
from exporter.fold import Vllm
from tests.exporter.support import (
    batch_of,
    block_hash,
    finished,
    make_exporter,
    put,
    step,
    value,
)

PREEMPTED = RequestPreempted(1, "recompute", "out_of_blocks", 40, 3, 1)


def vllm_after(*events: object) -> Vllm:
    vllm = Vllm(2048)
    vllm.on_batch(batch_of(*events))  # type: ignore[arg-type]
    return vllm


def test_a_preemption_counts_with_the_victims_next_token() -> None:
    vllm = vllm_after(PREEMPTED, PREEMPTED, step(emitted=[2]))
    assert vllm.preemptions == 0
    vllm.apply(step(emitted=[1, 2]))
    assert vllm.preemptions == 2
    vllm.apply(step(emitted=[1]))
    assert vllm.preemptions == 2


def test_a_victim_aborted_while_it_waits_is_never_counted() -> None:
    assert vllm_after(PREEMPTED, finished(1, reason="abort"), step(emitted=[1])).preemptions == 0


@pytest.mark.parametrize("end_first", [True, False])
def test_a_victim_whose_next_token_is_its_last_counts_once(end_first: bool) -> None:
    end, heartbeat = finished(1, reason="length"), step(emitted=[1])
    events = (end, heartbeat) if end_first else (heartbeat, end)
    assert vllm_after(PREEMPTED, *events).preemptions == 1


def test_prompts_count_at_the_first_token_and_iterations_without_recompute() -> None:
    vllm = vllm_after(
        RequestArrived(1, 100, 10),
        RequestArrived(2, 50, 10),
        RequestScheduled(1, 1, 64),
        step(prefill_tokens=36),
    )
    assert vllm.prompt_tokens == 0
    assert sum(vllm.iteration_tokens.counts) == 0  # a step without output is no iteration
    vllm.on_batch(batch_of(FirstToken(1, 5), step(emitted=[1])))
    assert vllm.prompt_tokens == 100
    assert vllm.iteration_tokens.total == 36 + 1
    vllm.on_batch(batch_of(PREEMPTED, step(emitted=[2])))
    resumed = RequestResumed(1, 40, 0, 1)
    vllm.on_batch(batch_of(resumed, step(prefill_tokens=101, emitted=[1, 2])))
    assert vllm.iteration_tokens.total == 37 + 1 + 2
    assert vllm.generation_tokens == 4


def test_a_finished_request_is_observed_once_with_the_times_it_reached() -> None:
    vllm = vllm_after(
        finished(1),
        finished(2, output_tokens=1, decode_ns=0),
        finished(3, reason="abort", queue_ns=None, prefill_ns=None, decode_ns=None),
    )
    observations: dict[str, object] = {
        name: (sum(histogram.counts), pytest.approx(histogram.total))
        for name, histogram in {
            "prompt": vllm.request_prompt_tokens,
            "max_tokens": vllm.request_max_tokens,
            "queue": vllm.queue,
            "decode": vllm.decode,
            "inference": vllm.inference,
            "per token": vllm.time_per_output_token,
        }.items()
    }
    expected: dict[str, object] = {
        "prompt": (3, 120),
        "max_tokens": (3, 192),
        "queue": (2, 0.2),
        "decode": (2, 0.4),
        "inference": (2, 1.4),
        "per token": (2, 0.1),  # 0.4 s over the four tokens after the first; one token: 0
    }
    assert observations == expected


def test_requests_that_a_gap_hides_are_skipped_not_guessed() -> None:
    vllm = vllm_after(RequestArrived(1, 100, 10), PREEMPTED)
    vllm.on_gap()
    vllm.on_batch(batch_of(RequestScheduled(1, 1, 0), FirstToken(1, 5), step(emitted=[1])))
    assert (vllm.prompt_tokens, vllm.preemptions, vllm.generation_tokens) == (0, 0, 1)


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
