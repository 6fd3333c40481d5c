"""Sizing: how the pool came to its size at start-up, and what it comes to."""

from typing import get_args

from exporter.catalogue.metric import ENGINE, Metric
from kvscope_events.events import SizingTerm

SIZING_PARTS = tuple(term for term in get_args(SizingTerm) if term not in ("total", "requested"))
"""Terms that add up to the total."""

SIZING = (
    Metric(
        name="kvscope_kv_pool_sizing_bytes",
        kind="gauge",
        help=(
            "Memory at start-up by term of the rule that sized the pool; the terms sum to "
            "kvscope_kv_pool_sizing_total_bytes. Absent where the size was configured; "
            "activation_peak and non_torch are absent where they were not measured."
        ),
        unit="bytes",
        group="pool",
        labels={**ENGINE, "term": SIZING_PARTS},
        otel_name="kvscope.kv.pool.sizing",
        source=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_pool_sizing_total_bytes",
        kind="gauge",
        help="Memory of the device, or of the machine, when the pool was sized.",
        unit="bytes",
        group="pool",
        otel_name="kvscope.kv.pool.sizing.total",
        source=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_pool_sizing_requested_bytes",
        kind="gauge",
        help="Memory that weights, activations and pool were allowed to take together.",
        unit="bytes",
        group="pool",
        otel_name="kvscope.kv.pool.sizing.requested",
        source=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_usable_tokens",
        kind="gauge",
        help="Tokens that the usable blocks hold.",
        unit="tokens",
        group="pool",
        otel_name="kvscope.kv.usable.tokens",
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
