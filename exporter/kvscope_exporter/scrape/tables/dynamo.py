"""Dynamo: a worker, whose page has its engine's own names as well, and a frontend of many workers.

Its simulated engine has some of `vllm:` too, so those names alone do not mean vLLM.
"""

from kvscope_exporter.scrape.labels import counter, gauge, histogram, sum_of
from kvscope_exporter.scrape.row import Identity, Row, Table
from kvscope_exporter.scrape.tables.sglang import SGLANG_ROWS
from kvscope_exporter.scrape.tables.vllm import VLLM_ROWS

_OF_ENGINE = "as the engine reports it"
_ALL_WORKERS = "all workers together, without label engine"
_IN_BUCKETS = f"{_ALL_WORKERS}, in Dynamo's buckets"

_WORKER = (
    Row(
        family="kvscope_kv_capacity_blocks",
        value=gauge("dynamo_component_total_blocks"),
        worth="passed through",
        reason=_OF_ENGINE,
    ),
    Row(
        family="kvscope_kv_active_ratio",
        value=gauge("dynamo_component_gpu_cache_usage_percent"),
        worth="passed through",
        reason=f"{_OF_ENGINE}; a ratio in spite of its name",
    ),
)

_FRONTEND = (
    Row(
        family="kvscope_kv_block_size_tokens",
        value=gauge("dynamo_frontend_model_kv_cache_block_size"),
    ),
    Row(
        family="kvscope_requests",
        labels={"state": "waiting"},
        value=gauge("dynamo_frontend_queued_requests"),
        worth="passed through",
        reason=f"requests that wait for a first token, {_ALL_WORKERS}",
    ),
    Row(
        family="kvscope_prefix_cache_queried_tokens_total",
        labels={"phase": "first"},
        value=sum_of("dynamo_frontend_input_sequence_tokens").beside(
            sum_of("dynamo_frontend_cached_tokens")
        ),
        worth="passed through",
        reason=_ALL_WORKERS,
    ),
    Row(
        family="kvscope_prefix_cache_hit_tokens_total",
        labels={"phase": "first"},
        value=sum_of("dynamo_frontend_cached_tokens"),
        worth="passed through",
        reason=f"as workers report it in their replies, {_ALL_WORKERS}",
    ),
    Row(
        family="kvscope_time_to_first_token_seconds",
        value=histogram("dynamo_frontend_time_to_first_token_seconds"),
        worth="passed through",
        reason=_IN_BUCKETS,
    ),
    Row(
        family="kvscope_inter_token_latency_seconds",
        value=histogram("dynamo_frontend_inter_token_latency_seconds"),
        worth="passed through",
        reason=_IN_BUCKETS,
    ),
    Row(
        family="kvscope_request_duration_seconds",
        value=histogram("dynamo_frontend_request_duration_seconds"),
        worth="passed through",
        reason=_IN_BUCKETS,
    ),
    Row(
        family="kvscope_generated_tokens_total",
        value=counter("dynamo_frontend_output_tokens"),
        reason=_ALL_WORKERS,
    ),
)

DYNAMO = Table(
    server="dynamo",
    rows=(*VLLM_ROWS, *SGLANG_ROWS, *_WORKER),
    identity=Identity(
        model_name=("model_name", "model"),
        engine=("engine", "dp_rank"),
        ranks=("pp_rank", "tp_rank"),
        may_be_repeated=False,
    ),
    note="A worker's page also has its engine's own names, so the rows of vLLM and SGLang "
    "apply to it as well.",
    absent={
        "kvscope_prefix_cache_missed_blocks_total": "the hit rates of the router are predictions",
    },
)
DYNAMO_FRONTEND = Table(
    server="dynamo",
    rows=_FRONTEND,
    identity=Identity(model_name=("model",), engine=(), alone="", may_be_repeated=False),
)
