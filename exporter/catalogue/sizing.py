"""Sizing: how the pool came to its size at start-up, and what it comes to."""

from typing import get_args

from engine.events import SizingTerm
from exporter.catalogue.metric import ENGINE, Metric

SIZING = (
    Metric(
        name="kvscope_kv_pool_sizing_bytes",
        kind="gauge",
        help=(
            "Bytes by term of the rule that sized the pool at start-up: total is the device's (or "
            "the machine's) memory and the sum of all others but requested, the budget. Absent "
            "where the size was told; activation_peak and non_torch absent where not measured."
        ),
        unit="bytes",
        group="pool",
        labels={**ENGINE, "term": get_args(SizingTerm)},
        otel_name="kvscope.kv.pool.sizing",
        source=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_capacity_tokens",
        kind="gauge",
        help="Tokens that the blocks which can be handed out hold.",
        unit="tokens",
        group="pool",
        otel_name="kvscope.kv.capacity.tokens",
        aliases=(
            "vllm:cache_config_info{kv_cache_size_tokens}",
            "sglang:max_total_num_tokens",
        ),
        source=("PoolCreated", "PoolSnapshot"),
    ),
    Metric(
        name="kvscope_kv_full_length_sequences",
        kind="gauge",
        help="Sequences of the longest length allowed that the pool holds at once.",
        unit="sequences",
        group="pool",
        otel_name="kvscope.kv.full_length_sequences",
        aliases=("vllm:cache_config_info{kv_cache_max_concurrency}",),
        source=("PoolCreated", "PoolSnapshot"),
    ),
)
