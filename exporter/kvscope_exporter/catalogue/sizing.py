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
        help="Memory at start-up, by term of the rule that sized the pool; the terms sum to "
        "kvscope_kv_pool_sizing_total_bytes.",
        notes="A term that was not measured is absent, and so is the family where the server "
        "reports no terms.",
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
        help="Memory of the device, or of the machine, when the pool was sized; absent where the "
        "server reports no terms.",
        unit="bytes",
        group="pool",
        detail="full",
        otel_name="kvscope.kv.pool.sizing.total",
        events=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_pool_sizing_requested_bytes",
        kind="gauge",
        help="Memory that weights, activations and pool were allowed to take together; absent "
        "where the size was configured.",
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
        help="Number of sequences of the longest length allowed that fit into the pool at once.",
        notes=_OF_GROUPS,
        unit="sequences",
        group="pool",
        detail="full",
        otel_name="kvscope.kv.full_length_sequences",
        aliases=("vllm:cache_config_info{kv_cache_max_concurrency}",),
        events=("PoolCreated",),
    ),
)
