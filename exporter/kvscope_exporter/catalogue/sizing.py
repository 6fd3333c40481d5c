"""Sizing: how the pool got its size at start-up, and how much fits into it."""

from typing import get_args

from kvscope_events.vocabulary import SizingTerm
from kvscope_exporter.catalogue.metric import ENGINE, Metric

SIZING_PARTS = tuple(term for term in get_args(SizingTerm) if term not in ("total", "requested"))
"""Terms that add up to the total."""

_OF_GROUPS = (
    "In a pool of several groups of layers (sliding windows, states) the server's own figure, less "
    "the reserved blocks; absent where the server reports none. vLLM's log line and "
    "vllm:cache_config_info count its null block in."
)

SIZING = (
    Metric(
        name="kvscope_kv_pool_sizing_bytes",
        kind="gauge",
        help="Memory at start-up, by term of the rule that sized the KV cache.",
        notes="The terms sum to kvscope_kv_pool_sizing_total_bytes. A term that was not measured "
        "is absent, and so is the family where the server reports no terms.",
        unit="bytes",
        group="pool",
        detail="full",
        labels={**ENGINE, "term": SIZING_PARTS},
        otel_name="kvscope.kv.pool.sizing",
        events=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_pool_sizing_total_bytes",
        kind="gauge",
        help="Memory of the device when the KV cache was sized.",
        notes="For a pool in host memory, the machine's. Absent where the server reports no terms.",
        unit="bytes",
        group="pool",
        detail="full",
        otel_name="kvscope.kv.pool.sizing.total",
        events=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_pool_sizing_requested_bytes",
        kind="gauge",
        help="Memory allowed for weights, activations and KV cache together.",
        notes="Absent where the size was configured.",
        unit="bytes",
        group="pool",
        detail="full",
        otel_name="kvscope.kv.pool.sizing.requested",
        events=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_usable_tokens",
        kind="gauge",
        help="Tokens that fit into the usable blocks.",
        notes=_OF_GROUPS,
        unit="tokens",
        least=1,
        group="pool",
        detail="full",
        otel_name="kvscope.kv.usable.tokens",
        aliases=(
            "vllm:cache_config_info{kv_cache_size_tokens}",
            "sglang:max_total_num_tokens",
        ),
        events=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_full_length_sequences",
        kind="gauge",
        help="Maximum concurrency: sequences of full length that fit into the KV cache.",
        notes=_OF_GROUPS,
        unit="sequences",
        group="pool",
        detail="full",
        otel_name="kvscope.kv.full_length_sequences",
        aliases=("vllm:cache_config_info{kv_cache_max_concurrency}",),
        events=("PoolCreated",),
    ),
)
