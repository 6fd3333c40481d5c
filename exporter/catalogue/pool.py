"""Pool: where every block is, and why blocks moved."""

from typing import get_args

from engine.events import AllocationCause, EvictionCause, ReleaseCause
from exporter.catalogue.metric import ENGINE, Metric

STATE_EVENTS = (
    "PoolCreated",
    "PoolSnapshot",
    "BlocksAllocated",
    "BlocksShared",
    "BlocksCached",
    "BlocksEvicted",
    "BlocksReleased",
)

POOL = (
    Metric(
        name="kvscope_kv_blocks",
        kind="gauge",
        help="Blocks of the KV pool by state; the states sum to kvscope_kv_capacity_blocks.",
        unit="blocks",
        group="pool",
        labels={**ENGINE, "state": ("active", "cached", "free", "reserved")},
        otel_name="kvscope.kv.blocks",
        aliases=(
            "sglang:kv_used_tokens",
            "sglang:kv_evictable_tokens",
            "sglang:kv_available_tokens",
            "trtllm_kv_cache_used_blocks",
            "trtllm_kv_cache_free_blocks",
        ),
        source=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_capacity_blocks",
        kind="gauge",
        help="Blocks in the KV pool, reserved ones included.",
        unit="blocks",
        group="pool",
        otel_name="kvscope.kv.capacity",
        aliases=(
            "vllm:cache_config_info{num_gpu_blocks}",
            "sglang:num_pages",
            "trtllm_kv_cache_max_blocks",
        ),
        source=("PoolCreated", "PoolSnapshot"),
    ),
    Metric(
        name="kvscope_kv_block_size_tokens",
        kind="gauge",
        help="Tokens that one block holds.",
        unit="tokens",
        group="pool",
        otel_name="kvscope.kv.block.tokens",
        aliases=(
            "vllm:cache_config_info{block_size}",
            "sglang:page_size",
            "trtllm_kv_cache_tokens_per_block",
        ),
        source=("PoolCreated", "PoolSnapshot"),
    ),
    Metric(
        name="kvscope_kv_block_size_bytes",
        kind="gauge",
        help="Bytes of K and V of all layers in one block; absent where no tensors back the pool.",
        unit="bytes",
        group="pool",
        otel_name="kvscope.kv.block.size",
        source=("PoolCreated", "PoolSnapshot"),
    ),
    Metric(
        name="kvscope_kv_usage_ratio",
        kind="gauge",
        help=(
            "Share of the blocks that can be handed out which is referenced by requests (active), "
            "or holds anything that can be found or is referenced (resident)."
        ),
        unit="ratio",
        group="pool",
        labels={**ENGINE, "basis": ("active", "resident")},
        otel_name="kvscope.kv.usage",
        aliases=("vllm:kv_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization"),
        source=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_ledger_imbalance_blocks",
        kind="gauge",
        help=(
            "Blocks by which the replayed events differ from the engine's own counts, and "
            "contradicting events since the pool's state was last known; anything but 0 is a bug."
        ),
        unit="blocks",
        group="pool",
        otel_name="kvscope.kv.ledger.imbalance",
        source=(*STATE_EVENTS, "StepCompleted"),
    ),
    Metric(
        name="kvscope_kv_shared_blocks",
        kind="gauge",
        help="Blocks that more than one request references.",
        unit="blocks",
        group="pool",
        otel_name="kvscope.kv.shared",
        source=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_deduplicated_blocks",
        kind="gauge",
        help="References beyond the first of all blocks: blocks that sharing saves now.",
        unit="blocks",
        group="pool",
        otel_name="kvscope.kv.deduplicated",
        source=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_unfilled_slots",
        kind="gauge",
        help="Token slots of active blocks not written at the last step: internal fragmentation.",
        unit="slots",
        group="pool",
        otel_name="kvscope.kv.unfilled_slots",
        source=("StepCompleted",),
    ),
    Metric(
        name="kvscope_kv_block_allocations_total",
        kind="counter",
        help="Blocks handed out, by what they were wanted for.",
        unit="blocks",
        group="pool",
        labels={**ENGINE, "cause": get_args(AllocationCause)},
        otel_name="kvscope.kv.block.allocations",
        aliases=("trtllm_kv_cache_gen_alloc_blocks_total",),
        source=("BlocksAllocated",),
    ),
    Metric(
        name="kvscope_kv_block_releases_total",
        kind="counter",
        help="References to blocks given back, by why the request gave them back.",
        unit="blocks",
        group="pool",
        labels={**ENGINE, "cause": get_args(ReleaseCause)},
        otel_name="kvscope.kv.block.releases",
        source=("BlocksReleased",),
    ),
    Metric(
        name="kvscope_kv_block_evictions_total",
        kind="counter",
        help="Cached blocks that lost their content, by why.",
        unit="blocks",
        group="pool",
        labels={**ENGINE, "cause": get_args(EvictionCause)},
        otel_name="kvscope.kv.block.evictions",
        aliases=("sglang:evicted_tokens_total",),
        source=("BlocksEvicted",),
    ),
    Metric(
        name="kvscope_kv_allocation_failures_total",
        kind="counter",
        help="Times that the pool could not serve a running request, which leads to preemption.",
        unit="failures",
        group="pool",
        otel_name="kvscope.kv.allocation_failures",
        source=("AllocationFailed",),
    ),
)
