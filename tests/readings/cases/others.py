"""Pages of the other servers: labels that differ, names that come and go, what is absent."""

import re

from tests.readings.cases import sglang, vllm
from tests.readings.cases.case import NOW, Case, Series, histogram

_TRTLLM = 'engine_type="pytorch",model_name="m"'
_TRTLLM_PAGE = f"""\
trtllm_kv_cache_max_blocks{{{_TRTLLM}}} 400.0
trtllm_kv_cache_used_blocks{{{_TRTLLM}}} 100.0
trtllm_kv_cache_free_blocks{{{_TRTLLM}}} 300.0
trtllm_kv_cache_tokens_per_block{{{_TRTLLM}}} 32.0
trtllm_kv_cache_utilization{{{_TRTLLM}}} 0.26
trtllm_kv_cache_hit_rate{{{_TRTLLM}}} 0.9
trtllm_kv_cache_host_utilization{{{_TRTLLM}}} 0.75
trtllm_kv_cache_gen_alloc_blocks_total{{{_TRTLLM}}} 55.0
trtllm_kv_cache_reused_blocks_total{{{_TRTLLM}}} 30.0
trtllm_kv_cache_missed_blocks_total{{{_TRTLLM}}} 70.0
trtllm_prompt_tokens_total{{{_TRTLLM}}} 3200.0
trtllm_prompt_cached_tokens_total{{{_TRTLLM}}} 960.0
trtllm_generation_tokens_total{{{_TRTLLM}}} 800.0
trtllm_num_requests_running{{{_TRTLLM}}} 6.0
trtllm_num_requests_waiting{{{_TRTLLM}}} 7.0
trtllm_num_paused_requests{{{_TRTLLM}}} 1.0
trtllm_request_success_total{{{_TRTLLM},finished_reason="stop"}} 3.0
trtllm_request_success_total{{{_TRTLLM},finished_reason="length"}} 4.0
trtllm_request_success_total{{{_TRTLLM},finished_reason="cancelled"}} 5.0
trtllm_request_success_total{{{_TRTLLM},finished_reason="timeout"}} 6.0
trtllm_prompt_cache_hit_tokens_total{{{_TRTLLM},cache_level="0",cache_tier="gpu"}} 900.0
trtllm_prompt_cache_hit_tokens_total{{{_TRTLLM},cache_level="1",cache_tier="host"}} 40.0
trtllm_prompt_cache_hit_tokens_total{{{_TRTLLM},cache_level="2",cache_tier="disk"}} 15.0
trtllm_prompt_cache_hit_tokens_total{{{_TRTLLM},cache_level="3",cache_tier="remote"}} 5.0
{histogram("trtllm_time_to_first_token_seconds", _TRTLLM, 1, 2, total=1.5)}\
{histogram("trtllm_time_per_output_token_seconds", _TRTLLM, 2, 2, total=0.5)}\
{histogram("trtllm_e2e_request_latency_seconds", _TRTLLM, 0, 2, total=8.5)}\
{histogram("trtllm_request_queue_time_seconds", _TRTLLM, 1, 1, total=0.25)}"""
_TRTLLM_READ: Series = {
    "kvscope_kv_capacity_blocks": 400,
    "kvscope_kv_usable_blocks": 400,
    "kvscope_kv_block_size_tokens": 32,
    "kvscope_kv_usable_tokens": 12_800,
    "kvscope_kv_blocks:active": 100,
    "kvscope_kv_active_ratio": 0.25,
    "kvscope_kv_block_allocations_total:decode": 55,
    "kvscope_prefix_cache_queried_tokens_total:first": 3200,
    "kvscope_prefix_cache_hit_tokens_total:first": 960,
    "kvscope_prefix_cache_queried_blocks_total": 100,
    "kvscope_prefix_cache_hit_blocks_total": 30,
    "kvscope_requests:running": 6,
    "kvscope_requests:waiting": 7,
    "kvscope_requests_finished_total:stop": 3,
    "kvscope_requests_finished_total:length": 4,
    "kvscope_requests_finished_total:abort": 11,
    "kvscope_prompt_tokens_total": 3200,
    "kvscope_generated_tokens_total": 800,
    "kvscope_kv_tier_hit_tokens_total:device": 900,
    "kvscope_kv_tier_hit_tokens_total:host": 40,
    "kvscope_kv_tier_hit_tokens_total:disk": 15,
    "kvscope_kv_tier_hit_tokens_total:remote": 5,
    "kvscope_kv_tier_used_ratio:host": 0.75,
    "kvscope_time_to_first_token_seconds": (1, 2, 1.5),
    "kvscope_inter_token_latency_seconds": (2, 2, 0.5),
    "kvscope_request_duration_seconds": (0, 2, 8.5),
    "kvscope_request_queue_seconds": (1, 1, 0.25),
}
_TRTLLM_USAGE_ONLY = 'trtllm:kv_cache_utilization{model_name="undefined"} 0.5\n'

TENSORRT_LLM = (
    Case(
        name="trtllm-serve",
        kind="tensorrt-llm",
        page=_TRTLLM_PAGE,
        expected={("m", "0"): _TRTLLM_READ},
    ),
    Case(
        name="trtllm-serve without its blocks, with a colon",
        kind="tensorrt-llm",
        page=_TRTLLM_USAGE_ONLY,
        expected={("", "0"): {"kvscope_kv_active_ratio": 0.5}},
    ),
    Case(
        name="Triton backend, whose fraction contradicts its blocks",
        kind="tensorrt-llm",
        page="".join(
            f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{kind}",model="m",'
            f'version="1"}} {value}\n'
            for kind, value in (
                ("fraction", 0.4875),
                ("tokens_per", 64),
                ("used", 10),
                ("free", 30),
                ("max", 40),
            )
        )
        + "".join(
            f'nv_trt_llm_request_metrics{{model="m",request_type="{kind}",version="1"}} {value}\n'
            for kind, value in (("waiting", 3), ("context", 1), ("scheduled", 2), ("max", 512))
        ),
        expected={
            ("m", "0"): {
                "kvscope_kv_capacity_blocks": 40,
                "kvscope_kv_usable_blocks": 40,
                "kvscope_kv_block_size_tokens": 64,
                "kvscope_kv_usable_tokens": 2560,
                "kvscope_kv_blocks:active": 10,
                "kvscope_kv_active_ratio": 0.25,
                "kvscope_requests:waiting": 3,
                "kvscope_requests:running": 2,
            }
        },
    ),
)

TGI = (
    Case(
        name="with blank lines, a summary and families without help",
        kind="tgi",
        page=f"""\
# TYPE tgi_request_success counter
tgi_request_success 109

# TYPE tgi_request_failure counter
tgi_request_failure{{err="validation"}} 2
tgi_request_failure{{err="template"}} 1
tgi_request_failure{{err="overloaded"}} 4
tgi_request_failure{{err="generation"}} 3
tgi_request_failure{{err="incomplete"}} 5
tgi_request_failure{{err="dropped"}} 9

tgi_batch_inference_count{{method="decode"}} 1509
tgi_queue_size 6
tgi_batch_current_size 2
tgi_batch_current_max_tokens 1500
tgi_batch_max_total_tokens 6000
tgi_request_skipped_tokens{{quantile="0.5"}} 0
tgi_request_skipped_tokens_sum 0
tgi_request_skipped_tokens_count 3423

tgi_request_input_length_sum 662
tgi_request_generated_tokens_sum 3423
{histogram("tgi_request_mean_time_per_token_duration", "", 1, 2, total=0.25)}
{histogram("tgi_request_duration", "", 0, 2, total=3.5)}
{histogram("tgi_request_queue_duration", "", 2, 2, total=0.5)}
{histogram("tgi_batch_inference_duration", 'method="prefill"', 1, 2, total=1.5)}
{histogram("tgi_batch_inference_duration", 'method="decode"', 7, 8, total=2.5)}
""",
        expected={
            ("", "0"): {
                "kvscope_kv_usable_tokens": 6000,
                "kvscope_kv_committed_tokens": 1500,
                "kvscope_requests:waiting": 6,
                "kvscope_requests:running": 2,
                "kvscope_requests_finished_total": 109,
                "kvscope_requests_finished_total:error": 8,
                "kvscope_requests_rejected_total:queue_full": 4,
                "kvscope_requests_rejected_total:invalid": 3,
                "kvscope_inter_token_latency_seconds": (1, 2, 0.25),
                "kvscope_request_duration_seconds": (0, 2, 3.5),
                "kvscope_request_queue_seconds": (2, 2, 0.5),
                "kvscope_step_duration_seconds": (8, 10, 4.0),
                "kvscope_prompt_tokens_total": 662,
                "kvscope_last_step_age_seconds": 0,
                "kvscope_last_step_timestamp_seconds": NOW,
                "kvscope_generated_tokens_total": 3423,
            }
        },
    ),
)

LLAMA_CPP = (
    Case(
        name="cached tokens beside the others",
        kind="llama.cpp",
        page="""\
llamacpp:prompt_tokens_total 30017
llamacpp:prompt_tokens_cached_total 19698
llamacpp:prompt_tokens_seconds 0
llamacpp:tokens_predicted_total 5456
llamacpp:requests_processing 4
llamacpp:requests_deferred 3
llamacpp:n_tokens_max 1833
llamacpp:n_decode_total 1451
""",
        expected={
            ("", "0"): {
                "kvscope_requests:running": 4,
                "kvscope_requests:waiting": 3,
                "kvscope_prefix_cache_queried_tokens_total:first": 49715,
                "kvscope_prefix_cache_hit_tokens_total:first": 19698,
                "kvscope_prompt_tokens_total": 49715,
                "kvscope_last_step_age_seconds": 0,
                "kvscope_last_step_timestamp_seconds": NOW,
                "kvscope_generated_tokens_total": 5456,
            }
        },
    ),
)

LMCACHE = (
    Case(
        name="a server of its own",
        kind="lmcache",
        page="""\
lmcache_mp_lookup_requested_total{cache_salt="a",model_name="m"} 600
lmcache_mp_lookup_requested_total{cache_salt="b",model_name="m"} 400
lmcache_mp_lookup_hit_total{cache_salt="a",model_name="m"} 500
lmcache_mp_lookup_hit_l1_total{cache_salt="a",model_name="m"} 300
lmcache_mp_lookup_hit_l2_total{cache_salt="a",model_name="m"} 200
""",
        expected={
            ("m", "0"): {
                "kvscope_kv_tier_queried_tokens_total:other": 1000,
                "kvscope_kv_tier_hit_tokens_total:host": 300,
                "kvscope_kv_tier_hit_tokens_total:other": 200,
            }
        },
    ),
    Case(
        name="in the process of its engine",
        kind="lmcache",
        page=next(case.page for case in vllm.CASES if case.name.startswith("LMCache")),
        expected={
            ("m", "0"): {
                "kvscope_kv_tier_queried_tokens_total:other": 500,
                "kvscope_kv_tier_hit_tokens_total:other": 256,
                "kvscope_kv_tier_used_bytes:host": 2**20,
                "kvscope_kv_tier_used_bytes:remote": 2**21,
                "kvscope_kv_tier_used_bytes:disk": 2**22,
            }
        },
    ),
)

_FRONTEND = f"""\
dynamo_frontend_model_kv_cache_block_size{{model="m"}} 32
dynamo_frontend_model_total_kv_blocks{{model="m"}} 100
dynamo_frontend_queued_requests{{model="m"}} 3
dynamo_frontend_output_tokens_total{{model="m"}} 13688
dynamo_frontend_input_sequence_tokens_sum{{model="m"}} 56485
dynamo_frontend_input_sequence_tokens_count{{model="m"}} 80
dynamo_frontend_cached_tokens_sum{{model="m"}} 18688
dynamo_frontend_worker_active_decode_blocks{{dp_rank="1",worker_id="4027"}} 0
{histogram("dynamo_frontend_time_to_first_token_seconds", 'model="m"', 1, 2, total=1.5)}\
{histogram("dynamo_frontend_inter_token_latency_seconds", 'model="m"', 8, 9, total=2.5)}\
{histogram("dynamo_frontend_request_duration_seconds", 'model="m"', 0, 2, total=9.5)}"""

DYNAMO = (
    Case(
        name="frontend",
        kind="dynamo",
        page=_FRONTEND,
        expected={
            ("m", ""): {
                "kvscope_kv_block_size_tokens": 32,
                "kvscope_requests:waiting": 3,
                "kvscope_prefix_cache_queried_tokens_total:first": 56485,
                "kvscope_prefix_cache_hit_tokens_total:first": 18688,
                "kvscope_prompt_tokens_total": 56485,
                "kvscope_generated_tokens_total": 13688,
                "kvscope_time_to_first_token_seconds": (1, 2, 1.5),
                "kvscope_inter_token_latency_seconds": (8, 9, 2.5),
                "kvscope_request_duration_seconds": (0, 2, 9.5),
            }
        },
    ),
    Case(
        name="worker with two ranks",
        kind="dynamo",
        page="".join(
            f'dynamo_component_total_blocks{{dp_rank="{rank}",dynamo_component="backend",'
            f'model="m"}} {rank + 100}\n'
            f'dynamo_component_gpu_cache_usage_percent{{dp_rank="{rank}",model="m"}} 0.{rank + 3}\n'
            f'vllm:num_preemptions_total{{engine="{rank}",model_name="m"}} {rank}\n'
            for rank in (0, 1)
        ),
        expected={
            ("m", str(rank)): {
                "kvscope_kv_capacity_blocks": 100 + rank,
                "kvscope_kv_active_ratio": (rank + 3) / 10,
                "kvscope_preemptions_total:recompute": rank,
            }
            for rank in (0, 1)
        },
    ),
    *(
        Case(name=f"worker with {name}", kind="dynamo", page=page, expected={("m", "0"): read})
        for name, page, read in (
            ("vLLM", vllm.CURRENT_PAGE, vllm.CURRENT_READ),
            ("the first vLLM", vllm.OLD_PAGE, vllm.OLD_READ),
            ("an older vLLM", vllm.BEFORE_SOURCES_PAGE, vllm.BEFORE_SOURCES_READ),
            ("SGLang", sglang.LOADED_PAGE, sglang.LOADED_READ),
            ("an older SGLang", sglang.OLD_PAGE, sglang.OLD_READ),
            ("a hybrid model on SGLang", sglang.HYBRID_PAGE, sglang.HYBRID_READ),
            ("TensorRT-LLM", _TRTLLM_PAGE, _TRTLLM_READ),
        )
    ),
    Case(
        name="worker with TensorRT-LLM and little of it",
        kind="dynamo",
        page=_TRTLLM_USAGE_ONLY,
        expected={("", "0"): {"kvscope_kv_active_ratio": 0.5}},
    ),
)


def through_ray(page: str, replica: str) -> str:
    """As Ray's agent writes it: no colons, labels of its own."""
    inside = f'ReplicaId="{replica}",WorkerId="w{replica}",Component="core_worker"'
    renamed = re.sub(r"^(vllm|sglang):", r"ray_\1_", page, flags=re.MULTILINE)
    return re.sub(r"^(ray_\w+)\{", rf"\1{{{inside},", renamed, flags=re.MULTILINE)


_IDLE_REPLICA = 'prompt_tokens_total{engine="0",model_name="m"} 5\n'
RAY = (
    *(
        Case(
            name=name, kind="ray", page=through_ray(page, "r1"), expected={("m", "r1"): dict(read)}
        )
        for name, page, read in (
            ("vLLM", vllm.CURRENT_PAGE, vllm.CURRENT_READ),
            ("the first vLLM", vllm.OLD_PAGE, vllm.OLD_READ),
            ("an older vLLM", vllm.BEFORE_SOURCES_PAGE, vllm.BEFORE_SOURCES_READ),
            ("SGLang", sglang.LOADED_PAGE, sglang.LOADED_READ),
            ("an older SGLang", sglang.OLD_PAGE, sglang.OLD_READ),
            ("a hybrid model on SGLang", sglang.HYBRID_PAGE, sglang.HYBRID_READ),
        )
    ),
    Case(
        name="two replicas of rank 0: one works, the gauges of the other have expired",
        kind="ray",
        page=through_ray("vllm:" + _IDLE_REPLICA, "dead")
        + through_ray("vllm:" + _IDLE_REPLICA, "r2")
        + through_ray('vllm:num_requests_running{engine="0",model_name="m"} 4\n', "r2")
        + through_ray('vllm:num_requests_waiting{engine="0",model_name="m"} 0\n', "r2"),
        expected={
            ("m", "dead"): {"kvscope_prompt_tokens_total": 5},
            ("m", "r2"): {
                "kvscope_prompt_tokens_total": 5,
                "kvscope_requests:running": 4,
                "kvscope_requests:waiting": 0,
                "kvscope_sequences:running": 4,
                "kvscope_sequences:waiting": 0,
            },
        },
    ),
    Case(
        name="no request yet",
        kind="ray",
        page='ray_serve_num_replicas{application="default"} 2\n',
        expected={},
    ),
)

CASES = (*TENSORRT_LLM, *TGI, *LLAMA_CPP, *LMCACHE, *DYNAMO, *RAY)
