"""Pages of the other servers: labels that differ, names that come and go, what is absent."""

import re

from tests.scrape.cases import sglang, vllm
from tests.scrape.cases.case import Case, histogram

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
                "kvscope_last_step_age_seconds": 0,
                "kvscope_generated_tokens_total": 5456,
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

_OF_SGLANG = (
    ("SGLang", sglang.LOADED_PAGE, sglang.LOADED_READ),
    ("an older SGLang", sglang.OLD_PAGE, sglang.OLD_READ),
    ("a hybrid model on SGLang", sglang.HYBRID_PAGE, sglang.HYBRID_READ),
)
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
            *_OF_SGLANG,
        )
    ),
)


def through_ray(page: str, replica: str) -> str:
    """As Ray's agent writes it: no colons, labels of its own."""
    inside = f'ReplicaId="{replica}",WorkerId="w{replica}",Component="core_worker"'
    renamed = re.sub(r"^(vllm|(?:serve_)?sglang):", r"ray_\1_", page, flags=re.MULTILINE)
    return re.sub(r"^(ray_\w+)\{", rf"\1{{{inside},", renamed, flags=re.MULTILINE)


_IDLE_REPLICA = 'generation_tokens_total{engine="0",model_name="m"} 5\n'
RAY = (
    *(
        Case(
            name=name, kind="ray", page=through_ray(page, "r1"), expected={("m", "r1"): dict(read)}
        )
        for name, page, read in (
            ("vLLM", vllm.CURRENT_PAGE, vllm.CURRENT_READ),
            ("the first vLLM", vllm.OLD_PAGE, vllm.OLD_READ),
            ("an older vLLM", vllm.BEFORE_SOURCES_PAGE, vllm.BEFORE_SOURCES_READ),
            *_OF_SGLANG,
            *(
                (f"{name} in Ray Serve", page.replace("sglang:", "serve_sglang:"), read)
                for name, page, read in _OF_SGLANG
            ),
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
            ("m", "dead"): {"kvscope_generated_tokens_total": 5},
            ("m", "r2"): {
                "kvscope_generated_tokens_total": 5,
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

CASES = (*LLAMA_CPP, *DYNAMO, *RAY)
