"""Pages of vLLM with numbers that cannot be true, and what is still read from them."""

from tests.scrape.cases.case import Case, histogram

_L = 'engine="0",model_name="m"'

CASES = (
    Case(
        name="values that are no numbers",
        kind="vllm",
        page="""\
vllm:kv_cache_usage_perc{engine="0",model_name="m"} NaN
vllm:num_requests_running{engine="0",model_name="m"} +Inf
vllm:num_preemptions_total{engine="0",model_name="m"} -1
vllm:cache_config_info{block_size="None",engine="0",num_gpu_blocks="None"} 1
vllm:generation_tokens_total{engine="0",model_name="m"} 8
""",
        expected={("m", "0"): {"kvscope_generated_tokens_total": 8}},
        num_contradictory=4,
    ),
    Case(
        name="numbers too large for anything",
        kind="vllm",
        page=f"""\
vllm:num_requests_running{{{_L}}} 1e308
vllm:num_preemptions_total{{{_L}}} 1e300
vllm:prefix_cache_queries_total{{{_L}}} 9.3e18
vllm:generation_tokens_total{{{_L}}} 8
"""
        + histogram("vllm:time_to_first_token_seconds", _L, 1, 1e308, total=7),
        expected={("m", "0"): {"kvscope_generated_tokens_total": 8}},
        num_contradictory=5,
    ),
    Case(
        name="numbers that cannot be true are absent",
        kind="vllm",
        page=f"""\
vllm:num_requests_running{{{_L}}} -5
vllm:num_requests_waiting{{{_L}}} 2.5
vllm:kv_cache_usage_perc{{{_L}}} 1.7
vllm:cache_config_info{{block_size="0",engine="0",num_gpu_blocks="0"}} 1
vllm:prefix_cache_queries_total{{{_L}}} 5
vllm:prefix_cache_hits_total{{{_L}}} 99999
vllm:num_preemptions_total{{{_L}}} 1.5
vllm:generation_tokens_total{{{_L}}} 8
"""
        + histogram("vllm:time_to_first_token_seconds", _L, 1, 2, total=-7),
        expected={
            ("m", "0"): {
                "kvscope_generated_tokens_total": 8,
                "kvscope_kv_tier_hit_tokens_total:device": 99999,  # nothing to compare it with
            }
        },
        num_contradictory=13,
    ),
)
