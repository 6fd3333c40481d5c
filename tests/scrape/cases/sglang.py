"""Pages of SGLang: before and after the first request, older ones, and several ranks."""

from tests.scrape.cases.case import Case, Series, histogram

_ENGINE = 'engine_type="unified",model_name="m"'
_L = f'{_ENGINE},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
_REQUEST = f'{_ENGINE},is_streaming="false"'
_STREAMED = f'{_ENGINE},is_streaming="true"'

IDLE_PAGE = f"""\
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{{{_L}}} 3072.0
sglang:page_size{{{_L}}} 16.0
sglang:num_pages{{{_L}}} 192.0
sglang:context_len{{{_L}}} 2048.0
sglang:weight_memory_usage_gb{{{_L}}} 0.5
sglang:kv_cache_memory_usage_gb{{{_L}}} 0.25
sglang:prefill_effective_tokens_total{{{_L},mode="input"}} 0.0
sglang:prefill_effective_tokens_total{{{_L},mode="device_hit"}} 0.0
sglang:prefill_effective_tokens_total{{{_L},mode="host_hit"}} 0.0
sglang:prefill_effective_tokens_total{{{_L},mode="storage_hit"}} 0.0
"""
_CONSTANTS: Series = {
    "kvscope_kv_capacity_blocks": 192,
    "kvscope_kv_usable_blocks": 192,
    "kvscope_kv_block_size_tokens": 16,
    "kvscope_kv_usable_tokens": 3072,
    "kvscope_kv_full_length_sequences": 1.5,
    "kvscope_kv_pool_sizing_bytes:weights": 2**29,
    "kvscope_kv_pool_sizing_bytes:kv_pool": 2**28,
}
IDLE_READ: Series = {
    **_CONSTANTS,
    "kvscope_prefix_cache_queried_tokens_total:first": 0,
    "kvscope_prefix_cache_hit_tokens_total:first": 0,
    "kvscope_kv_tier_hit_tokens_total:device": 0,
    "kvscope_kv_tier_hit_tokens_total:host": 0,
    "kvscope_kv_tier_hit_tokens_total:other": 0,
}

_CONSTANTS_PAGE = "".join(
    line + "\n" for line in IDLE_PAGE.splitlines() if "prefill_effective" not in line
)
LOADED_PAGE = f"""{_CONSTANTS_PAGE}\
sglang:prefill_effective_tokens_total{{{_L},mode="input"}} 16483.0
sglang:prefill_effective_tokens_total{{{_L},mode="device_hit"}} 6064.0
sglang:prefill_effective_tokens_total{{{_L},mode="host_hit"}} 32.0
sglang:prefill_effective_tokens_total{{{_L},mode="storage_hit"}} 16.0
sglang:realtime_tokens_total{{{_L},mode="prefill_compute"}} 17158.0
sglang:realtime_tokens_total{{{_L},mode="prefill_cache"}} 6064.0
sglang:realtime_tokens_total{{{_L},mode="decode"}} 6321.0
sglang:prompt_tokens_total{{{_REQUEST}}} 20000.0
sglang:prompt_tokens_total{{{_ENGINE},is_streaming="true"}} 1107.0
sglang:generation_tokens_total{{{_REQUEST}}} 6064.0
sglang:num_requests_total{{{_REQUEST}}} 33.0
sglang:num_aborted_requests_total{{{_ENGINE}}} 2.0
sglang:cached_tokens_total{{{_ENGINE},cache_source="device"}} 5648.0
sglang:cache_hit_rate{{{_L}}} 0.57
sglang:token_usage{{{_L}}} 0.84
sglang:full_token_usage{{{_L}}} 0.8385416666666666
sglang:kv_used_tokens{{{_L}}} 2576.0
sglang:kv_evictable_tokens{{{_L}}} 160.0
sglang:kv_available_tokens{{{_L}}} 336.0
sglang:num_running_reqs{{{_L}}} 4.0
sglang:num_queue_reqs{{{_L}}} 3.0
sglang:num_grammar_queue_reqs{{{_L}}} 1.0
sglang:num_retracted_reqs{{{_L},pid="17"}} 0.0
sglang:num_retracted_requests_total{{{_L}}} 2.0
sglang:num_retracted_input_tokens_total{{{_L}}} 480.0
sglang:num_retracted_output_tokens_total{{{_L}}} 195.0
sglang:evicted_tokens_total{{cache_type="UnifiedRadixCache",dp_rank="0",pp_rank="0",tp_rank="0"}} \
20544.0
sglang:hicache_host_used_tokens{{{_L}}} 100.0
sglang:hicache_host_total_tokens{{{_L}}} 400.0
{histogram("sglang:time_to_first_token_seconds", _REQUEST, 1, 4, total=2.0)}\
{histogram("sglang:time_to_first_token_seconds", _STREAMED, 0, 1, total=3.0)}\
{histogram("sglang:inter_token_latency_seconds", _ENGINE, 5, 6, total=1.5)}\
{histogram("sglang:e2e_request_latency_seconds", _REQUEST, 2, 3, total=4.5)}\
{histogram("sglang:queue_time_seconds", _L, 3, 3, total=0.5)}"""

LOADED_READ: Series = {
    **_CONSTANTS,
    "kvscope_kv_blocks:active": 161,
    "kvscope_kv_blocks:cached": 10,
    "kvscope_kv_blocks:free": 21,
    "kvscope_kv_active_ratio": 2576 / 3072,
    "kvscope_kv_resident_ratio": 2736 / 3072,
    "kvscope_prefix_cache_queried_tokens_total:first": 16483 + 6064 + 32 + 16,
    "kvscope_prefix_cache_hit_tokens_total:first": 6064,
    "kvscope_kv_block_evictions_total:capacity": 1284,
    "kvscope_preemptions_total:recompute": 2,
    "kvscope_preemption_discarded_tokens_total:recompute": 675,
    "kvscope_preemption_recomputed_tokens_total:recompute": 675,
    "kvscope_requests:waiting": 4,
    "kvscope_requests:running": 4,
    "kvscope_sequences:waiting": 4,
    "kvscope_sequences:running": 4,
    "kvscope_requests_finished_total": 33,
    "kvscope_step_tokens_total:prefill": 17158,
    "kvscope_step_tokens_total:decode": 6321,
    "kvscope_last_step_age_seconds": 0,
    "kvscope_generated_tokens_total": 6064,
    "kvscope_kv_tier_hit_tokens_total:device": 6064,
    "kvscope_kv_tier_hit_tokens_total:host": 32,
    "kvscope_kv_tier_hit_tokens_total:other": 16,
    "kvscope_kv_tier_used_ratio:host": 0.25,
    "kvscope_time_to_first_token_seconds": (1, 5, 5.0),
    "kvscope_inter_token_latency_seconds": (5, 6, 1.5),
    "kvscope_request_duration_seconds": (2, 3, 4.5),
    "kvscope_request_queue_seconds": (3, 3, 0.5),
}

_API_PAGE = """\
sglang:http_responses_total{endpoint="/metrics",method="GET",status_code="200"} 300.0
sglang:http_responses_total{endpoint="/v1/completions",method="POST",status_code="200"} 30.0
sglang:http_responses_total{endpoint="/v1/chat/completions",method="POST",status_code="200"} 3.0
sglang:http_responses_total{endpoint="/v1/completions",method="POST",status_code="400"} 2.0
sglang:http_responses_total{endpoint="/v1/completions",method="POST",status_code="307"} 1.0
sglang:http_responses_total{endpoint="/v1/completions",method="POST",status_code="500"} 4.0
sglang:http_responses_total{endpoint="/v1/completions",method="POST",status_code="503"} 5.0
"""
_API_READ: Series = {
    "kvscope_api_responses_total:2xx": 33,
    "kvscope_api_responses_total:3xx": 1,
    "kvscope_api_responses_total:4xx": 2,
    "kvscope_api_responses_total:5xx": 9,
}

OLD_PAGE = f"""\
sglang:max_total_num_tokens{{{_L}}} 700.0
sglang:page_size{{{_L}}} 1.0
sglang:full_token_usage{{{_L}}} 0.125
sglang:token_usage{{{_L}}} 0.13
sglang:num_queue_reqs{{{_L}}} 2.0
sglang:prompt_tokens_total{{{_REQUEST}}} 4422.0
sglang:cached_tokens_total{{{_ENGINE},cache_source="total"}} 988.0
sglang:evicted_tokens_total{{cache_type="RadixCache"}} 2757.0
"""
OLD_READ: Series = {
    "kvscope_kv_capacity_blocks": 700,
    "kvscope_kv_usable_blocks": 700,
    "kvscope_kv_block_size_tokens": 1,
    "kvscope_kv_usable_tokens": 700,
    "kvscope_kv_active_ratio": 0.125,
    "kvscope_requests:waiting": 2,
    "kvscope_sequences:waiting": 2,
    "kvscope_prefix_cache_queried_tokens_total:first": 4422,
    "kvscope_prefix_cache_hit_tokens_total:first": 988,
    "kvscope_kv_block_evictions_total:capacity": 2757,
}

HYBRID_PAGE = f"sglang:token_usage{{{_L}}} 0.13\n"
HYBRID_READ: Series = {"kvscope_kv_active_ratio": 0.13}

CASES = (
    Case(
        name="before the first request",
        kind="sglang",
        page=IDLE_PAGE,
        expected={("m", "0"): IDLE_READ},
    ),
    Case(
        name="under load",
        kind="sglang",
        page=LOADED_PAGE + _API_PAGE,
        expected={("m", "0"): {**LOADED_READ, **_API_READ}},
    ),
    Case(
        name="a gateway in front of three workers, one of them with two ranks",
        kind="sglang",
        page="".join(
            f'sglang_num_queue_reqs{{engine_type="{kind}",model_name="m",tp_rank="{rank}",'
            f'worker_addr="{place}"}} {waiting}\n'
            for kind, place, rank, waiting in (
                ("prefill", "grpc://10.1.0.4:9000", 0, 5),
                ("prefill", "grpc://10.1.0.4:9000", 1, 5),
                ("prefill", "grpc://10.1.0.5:9000", 0, 6),
                ("decode", "grpc://10.1.0.6:9000", 0, 0),
            )
        ),
        expected={
            ("m", f"grpc://10.1.0.{host}:9000"): {
                "kvscope_requests:waiting": waiting,
                "kvscope_sequences:waiting": waiting,
            }
            for host, waiting in ((4, 5), (5, 6), (6, 0))
        },
    ),
    Case(
        name="an API that has answered only its readers",
        kind="sglang",
        page=f"""{HYBRID_PAGE}\
sglang:http_responses_total{{endpoint="/metrics",method="GET",status_code="200"}} 3.0
""",
        expected={
            ("m", "0"): {
                **HYBRID_READ,
                **{f"kvscope_api_responses_total:{n}xx": 0 for n in range(2, 6)},
            }
        },
    ),
    Case(name="older", kind="sglang", page=OLD_PAGE, expected={("m", "0"): OLD_READ}),
    Case(name="hybrid", kind="sglang", page=HYBRID_PAGE, expected={("m", "0"): HYBRID_READ}),
    Case(
        name="two data-parallel engines of two tensor-parallel ranks each, and their front end",
        kind="sglang",
        page="".join(
            f'sglang:num_running_reqs{{dp_rank="{dp}",model_name="m",pp_rank="0",tp_rank="{tp}"}} '
            f"{dp + 5}\n"
            for dp, tp in ((0, 1), (0, 0), (1, 3), (1, 2))
        )
        + 'sglang:generation_tokens_total{model_name="m"} 12\n',
        expected={
            ("m", "0"): {"kvscope_requests:running": 5, "kvscope_sequences:running": 5},
            ("m", "1"): {"kvscope_requests:running": 6, "kvscope_sequences:running": 6},
            ("m", ""): {"kvscope_generated_tokens_total": 12},
        },
    ),
    Case(
        name="two gauges of one engine that nothing tells apart",
        kind="sglang",
        page="""\
sglang:page_size{model_name="m",shard="a"} 16
sglang:page_size{model_name="m",shard="b"} 16
sglang:num_running_reqs{model_name="m"} 1
""",
        expected={("m", "0"): {"kvscope_requests:running": 1, "kvscope_sequences:running": 1}},
        num_contradictory=1,
    ),
)
