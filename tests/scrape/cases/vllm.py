"""Pages of vLLM: what they look like in one release and another, and what is read from them."""

from tests.scrape.cases import impossible
from tests.scrape.cases.case import Case, Series, histogram

_L = 'engine="0",model_name="m"'
_LATENCIES = (
    histogram("vllm:time_to_first_token_seconds", _L, 1, 3, 4, total=2.5)
    + histogram("vllm:e2e_request_latency_seconds", _L, 0, 2, 4, total=6.5)
    + histogram("vllm:request_queue_time_seconds", _L, 4, 4, 4, total=0.25)
)
_LATENCIES_READ: Series = {
    "kvscope_time_to_first_token_seconds": (1, 3, 4, 2.5),
    "kvscope_request_duration_seconds": (0, 2, 4, 6.5),
    "kvscope_request_queue_seconds": (4, 4, 4, 0.25),
}

CURRENT_PAGE = f"""\
# HELP python_info Python platform information
# TYPE python_info gauge
python_info{{implementation="CPython",major="3",minor="12"}} 1.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{_L}}} 7.0
vllm:num_requests_waiting{{{_L}}} 2.0
vllm:num_requests_waiting_by_reason{{{_L},reason="capacity"}} 2.0
vllm:kv_cache_usage_perc{{{_L}}} 0.9608938547486033
vllm:cache_config_info{{block_size="32",cache_dtype="auto",engine="0",\
kv_cache_max_concurrency="2.8125",kv_cache_size_tokens="5760",num_cpu_blocks="None",\
num_gpu_blocks="180"}} 1.0
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{{_L}}} 33638.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{{{_L}}} 1.795e+09
vllm:prefix_cache_hits_total{{{_L}}} 9696.0
vllm:external_prefix_cache_queries_total{{{_L}}} 23942.0
vllm:external_prefix_cache_hits_total{{{_L}}} 100.0
vllm:num_preemptions_total{{{_L}}} 3.0
vllm:prompt_tokens_total{{{_L}}} 33000.0
vllm:generation_tokens_total{{{_L}}} 7952.0
vllm:prompt_tokens_cached_by_source_total{{{_L},source="device"}} 9000.0
vllm:prompt_tokens_cached_by_source_total{{{_L},source="host"}} 60.0
vllm:prompt_tokens_cached_by_source_total{{{_L},source="p2p"}} 30.0
vllm:prompt_tokens_cached_by_source_total{{{_L},source="disk"}} 20.0
vllm:prompt_tokens_cached_by_source_total{{{_L},source="external_unspecified"}} 10.0
vllm:request_success_total{{{_L},finished_reason="stop"}} 5.0
vllm:request_success_total{{{_L},finished_reason="length"}} 43.0
vllm:request_success_total{{{_L},finished_reason="abort"}} 2.0
vllm:request_success_total{{{_L},finished_reason="error"}} 1.0
vllm:request_success_total{{{_L},finished_reason="repetition"}} 4.0
vllm:admission_rejections_total{{model_name="m",reason="max_num_queued_reqs"}} 6.0
vllm:admission_rejections_total{{model_name="m",reason="max_num_queued_tokens"}} 8.0
vllm:iteration_tokens_total_count{{{_L}}} 77.0
vllm:iteration_tokens_total_sum{{{_L}}} 900.0
{_LATENCIES}{histogram("vllm:inter_token_latency_seconds", _L, 9, 9, 12, total=3.5)}"""

CURRENT_READ: Series = {
    "kvscope_kv_capacity_blocks": 180,
    "kvscope_kv_block_size_tokens": 32,
    "kvscope_kv_usable_blocks": 179,
    "kvscope_kv_usable_tokens": 179 * 32,
    "kvscope_kv_full_length_sequences": 2.8125 * 179 / 180,
    "kvscope_kv_blocks:active": 172,
    "kvscope_kv_active_ratio": 0.9608938547486033,
    "kvscope_prefix_cache_queried_tokens_total:first": 33638,
    "kvscope_prefix_cache_hit_tokens_total:first": 9696,
    "kvscope_requests:running": 7,
    "kvscope_requests:waiting": 2,
    "kvscope_sequences:running": 7,
    "kvscope_sequences:waiting": 2,
    "kvscope_requests_finished_total:stop": 9,
    "kvscope_requests_finished_total:length": 43,
    "kvscope_requests_finished_total:error": 1,
    "kvscope_requests_rejected_total:queue_full": 14,
    "kvscope_preemptions_total:recompute": 3,
    "kvscope_last_step_age_seconds": 0,
    "kvscope_generated_tokens_total": 7952,
    "kvscope_kv_tier_hit_tokens_total:device": 9000,
    "kvscope_kv_tier_hit_tokens_total:host": 60,
    "kvscope_kv_tier_hit_tokens_total:remote": 30,
    "kvscope_kv_tier_hit_tokens_total:disk": 20,
    "kvscope_kv_tier_hit_tokens_total:other": 10,
    "kvscope_kv_tier_queried_tokens_total:other": 23942,
    **_LATENCIES_READ,
    "kvscope_inter_token_latency_seconds": (9, 9, 12, 3.5),
}

OLD_PAGE = f"""\
vllm:gpu_cache_usage_perc{{{_L}}} 0.25
vllm:cpu_cache_usage_perc{{{_L}}} 0.0
vllm:num_requests_swapped{{{_L}}} 0.0
vllm:gpu_prefix_cache_hit_rate{{{_L}}} -1.0
vllm:gpu_prefix_cache_queries_total{{{_L}}} 17.0
vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="1000"}} 1.0
vllm:num_requests_running{{{_L}}} 1.0
{histogram("vllm:time_per_output_token_seconds", _L, 1, 2, total=0.75)}"""

OLD_READ: Series = {
    "kvscope_kv_capacity_blocks": 1000,
    "kvscope_kv_block_size_tokens": 16,
    "kvscope_kv_usable_blocks": 1000,
    "kvscope_kv_active_ratio": 0.25,
    "kvscope_requests:running": 1,
    "kvscope_sequences:running": 1,
    "kvscope_inter_token_latency_seconds": (1, 2, 0.75),
}

BEFORE_SOURCES_PAGE = f"""\
vllm:prefix_cache_hits_total{{{_L}}} 44.0
vllm:external_prefix_cache_hits_total{{{_L}}} 11.0
vllm:kv_cache_usage_perc{{{_L}}} 0.25
vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="101"}} 1.0
"""
BEFORE_SOURCES_READ: Series = {
    "kvscope_prefix_cache_hit_tokens_total:first": 44,
    "kvscope_kv_tier_hit_tokens_total:device": 44,
    "kvscope_kv_tier_hit_tokens_total:other": 11,
    "kvscope_kv_capacity_blocks": 101,
    "kvscope_kv_block_size_tokens": 16,
    "kvscope_kv_usable_blocks": 100,
    "kvscope_kv_usable_tokens": 1600,
    "kvscope_kv_blocks:active": 25,
    "kvscope_kv_active_ratio": 0.25,
}

_RANKS = """\
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.9292929292929293
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.7979797979797979
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="BLOCKS"} 1.0
vllm:cache_config_info{block_size="32",engine="1",num_gpu_blocks="BLOCKS"} 1.0
vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 5.0
"""


def _rank(usage: float, active: float) -> Series:
    return {
        "kvscope_kv_active_ratio": usage,
        "kvscope_kv_block_size_tokens": 32,
        "kvscope_kv_capacity_blocks": 100,
        "kvscope_kv_usable_blocks": 99,
        "kvscope_kv_usable_tokens": 99 * 32,
        "kvscope_kv_blocks:active": active,
    }


_NO_RESPONSES: Series = {f"kvscope_api_responses_total:{n}xx": 0 for n in range(2, 6)}

CASES = (
    Case(name="current", kind="vllm", page=CURRENT_PAGE, expected={("m", "0"): dict(CURRENT_READ)}),
    Case(name="the first engine", kind="vllm", page=OLD_PAGE, expected={("m", "0"): OLD_READ}),
    Case(
        name="before sources were told apart",
        kind="vllm",
        page=BEFORE_SOURCES_PAGE,
        expected={("m", "0"): BEFORE_SOURCES_READ},
    ),
    Case(
        name="two ranks, whose blocks vLLM adds up, and a queue in front of both",
        kind="vllm",
        page=_RANKS.replace("BLOCKS", "200"),
        expected={
            ("m", "0"): _rank(0.9292929292929293, 92),
            ("m", "1"): _rank(0.7979797979797979, 79),
            ("m", ""): {"kvscope_requests_rejected_total:queue_full": 5},
        },
    ),
    Case(
        name="a pool of several groups, whose size vLLM tells itself",
        kind="vllm",
        page=f"""\
vllm:kv_cache_usage_perc{{{_L}}} 0.5
vllm:cache_config_info{{block_size="16",engine="0",kv_cache_max_concurrency="4.21",\
kv_cache_size_tokens="68976",num_gpu_blocks="9001"}} 1
""",
        expected={
            ("m", "0"): {
                "kvscope_kv_capacity_blocks": 9001,
                "kvscope_kv_block_size_tokens": 16,
                "kvscope_kv_usable_blocks": 9000,
                "kvscope_kv_usable_tokens": 68976,
                "kvscope_kv_full_length_sequences": 4.21,
                "kvscope_kv_blocks:active": 4500,
                "kvscope_kv_active_ratio": 0.5,
            }
        },
    ),
    Case(
        name="one group, and a longest sequence that ends inside a block",
        kind="vllm",
        page=f"""\
vllm:kv_cache_usage_perc{{{_L}}} 0.5
vllm:cache_config_info{{block_size="32",engine="0",kv_cache_max_concurrency="317.47619047619045",\
kv_cache_size_tokens="634952",num_gpu_blocks="20001"}} 1
""",
        expected={
            ("m", "0"): {
                "kvscope_kv_capacity_blocks": 20001,
                "kvscope_kv_block_size_tokens": 32,
                "kvscope_kv_usable_blocks": 20000,
                "kvscope_kv_usable_tokens": 640000,
                "kvscope_kv_full_length_sequences": 20000 / 63,
                "kvscope_kv_blocks:active": 10000,
                "kvscope_kv_active_ratio": 0.5,
            }
        },
    ),
    Case(
        name="NIM, whose names have no server in front",
        kind="vllm",
        page="""\
# TYPE num_requests_running gauge
num_requests_running{model_name="m"} 6.0
num_requests_waiting{model_name="m"} 1.0
gpu_cache_usage_perc{model_name="m"} 0.25
num_request_max{model_name="m"} 64.0
prompt_tokens_total{model_name="m"} 900.0
generation_tokens_total{model_name="m"} 80.0
"""
        + histogram("time_to_first_token_seconds", 'model_name="m"', 1, 3, 4, total=2.5),
        expected={
            ("m", "0"): {
                "kvscope_requests:running": 6,
                "kvscope_requests:waiting": 1,
                "kvscope_sequences:running": 6,
                "kvscope_sequences:waiting": 1,
                "kvscope_kv_active_ratio": 0.25,
                "kvscope_generated_tokens_total": 80,
                "kvscope_time_to_first_token_seconds": (1, 3, 4, 2.5),
            }
        },
    ),
    *(
        Case(
            name=f"a gateway that tells its servers apart by {apart}",
            kind="vllm",
            page=f"""\
vllm:num_requests_waiting{{model_name="m",{apart}="{first}"}} 3
vllm:num_requests_waiting{{model_name="m",{apart}="{second}"}} 0
vllm:generation_tokens_total{{model_name="m",{apart}="{second}"}} 8
http_requests_total{{method="POST",status="2xx"}} 5
""",
            expected={
                ("m", first): {"kvscope_requests:waiting": 3, "kvscope_sequences:waiting": 3},
                ("m", second): {
                    "kvscope_requests:waiting": 0,
                    "kvscope_sequences:waiting": 0,
                    "kvscope_generated_tokens_total": 8,
                },
                ("m", ""): {"kvscope_api_responses_total:2xx": 5},
            },
        )
        for apart, first, second in (
            ("backend_url", "http://10.1.0.4:8000", "http://10.1.0.5:8000"),
            ("pod", "vllm-0", "vllm-1"),
            ("worker_id", "0", "1"),
        )
    ),
    Case(
        name="two servers with two ranks each",
        kind="vllm",
        page="".join(
            f'vllm:num_requests_waiting{{engine="{rank}",instance="{host}",model_name="m"}} {n}\n'
            for n, (host, rank) in enumerate([("a", 0), ("a", 1), ("b", 0), ("b", 1)])
        ),
        expected={
            ("m", engine): {"kvscope_requests:waiting": n, "kvscope_sequences:waiting": n}
            for n, engine in enumerate(["a/0", "a/1", "b/0", "b/1"])
        },
    ),
    Case(
        name="one server, whose pod is named",
        kind="vllm",
        page=f"""\
vllm:num_requests_waiting{{{_L},pod="vllm-0"}} 3
vllm:generation_tokens_total{{{_L},pod="vllm-0"}} 4
""",
        expected={
            ("m", "0"): {
                "kvscope_requests:waiting": 3,
                "kvscope_sequences:waiting": 3,
                "kvscope_generated_tokens_total": 4,
            }
        },
    ),
    Case(
        name="ranks that are not equal",
        kind="vllm",
        page=_RANKS.replace("BLOCKS", "201"),
        expected={
            ("m", engine): {"kvscope_kv_active_ratio": usage, "kvscope_kv_block_size_tokens": 32}
            for engine, usage in (("0", 0.9292929292929293), ("1", 0.7979797979797979))
        }
        | {("m", ""): {"kvscope_requests_rejected_total:queue_full": 5}},
        num_contradictory=8,
    ),
    Case(
        name="responses of the API server by class, whatever the route",
        kind="vllm",
        page="""\
vllm:generation_tokens_total{engine="0",model_name="m"} 8
http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 40.0
http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 2.0
http_requests_total{handler="/v1/models",method="GET",status="2xx"} 900.0
http_requests_total{handler="none",method="GET",status="4xx"} 70.0
http_requests_total{handler="/v1/completions",method="POST",status="3xx"} 1.0
http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 3.0
http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 4.0
http_request_duration_highr_seconds_count 1020.0
process_start_time_seconds 1.79516543e+09
""",
        expected={
            ("m", "0"): {
                "kvscope_server_start_time_seconds": 1795165430,
                "kvscope_generated_tokens_total": 8,
                "kvscope_api_responses_total:2xx": 42,
                "kvscope_api_responses_total:3xx": 1,
                "kvscope_api_responses_total:4xx": 3,
                "kvscope_api_responses_total:5xx": 4,
            }
        },
    ),
    Case(
        name="an API server of two ranks that has answered nothing yet",
        kind="vllm",
        page="""\
vllm:generation_tokens_total{engine="0",model_name="m"} 0
vllm:generation_tokens_total{engine="1",model_name="m"} 0
http_request_duration_highr_seconds_count 0.0
""",
        expected={
            ("m", "0"): {"kvscope_generated_tokens_total": 0},
            ("m", "1"): {"kvscope_generated_tokens_total": 0},
            ("m", ""): _NO_RESPONSES,
        },
    ),
    Case(
        name="names without colons and counters without _total",
        kind="vllm",
        page="""\
vllm_num_requests_waiting{engine="0",model_name="m"} 3
vllm_prompt_tokens{engine="0",model_name="m"} 12
vllm_prefix_cache_hits{engine="0",model_name="m"} 4
""",
        expected={
            ("m", "0"): {
                "kvscope_requests:waiting": 3,
                "kvscope_sequences:waiting": 3,
                "kvscope_prefix_cache_hit_tokens_total:first": 4,
                "kvscope_kv_tier_hit_tokens_total:device": 4,
            }
        },
    ),
    *impossible.CASES,
)
