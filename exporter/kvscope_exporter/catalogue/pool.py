"""Pool: the state of every block, and the reasons why blocks changed it."""

from typing import get_args

from kvscope_events.vocabulary import AllocationCause, EvictionCause, ReleaseCause, SwapDirection
from kvscope_exporter.catalogue.metric import ENGINE, Metric
from kvscope_exporter.state.ledger import HoldReason

STATE_EVENTS = (
    "PoolCreated",
    "BlocksAllocated",
    "BlocksShared",
    "BlocksCached",
    "BlocksEvicted",
    "BlocksReleased",
)
"""The events from which the state of every block follows."""
COUNTED_STATE_EVENTS = (
    "PoolCreated",
    "PoolCounted",
    "PagesAllocated",
    "PagesShared",
    "PagesCached",
    "PagesEvicted",
    "PagesReleased",
)
"""The events from which the counts of a counted pool follow."""

POOL = (
    Metric(
        name="kvscope_kv_blocks",
        kind="gauge",
        help="Blocks of the KV pool by state; the states sum to kvscope_kv_capacity_blocks.",
        notes="SGLang calls a block a page. Its private and its protected pages are active, its "
        "evictable ones cached.",
        unit="blocks",
        within="kvscope_kv_capacity_blocks",
        group="pool",
        labels={**ENGINE, "state": ("active", "cached", "free", "reserved")},
        otel_name="kvscope.kv.blocks",
        aliases=(
            "sglang:kv_used_tokens",
            "sglang:kv_evictable_tokens",
            "sglang:kv_available_tokens",
        ),
        events=STATE_EVENTS,
        counted=COUNTED_STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_capacity_blocks",
        kind="gauge",
        help="Blocks in the KV pool, reserved ones included.",
        unit="blocks",
        least=1,
        group="pool",
        detail="full",
        otel_name="kvscope.kv.capacity",
        aliases=("vllm:cache_config_info{num_gpu_blocks}", "sglang:num_pages"),
        events=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_block_size_tokens",
        kind="gauge",
        help="Tokens that one block holds; absent where the groups of layers differ.",
        unit="tokens",
        least=1,
        group="pool",
        otel_name="kvscope.kv.block.tokens",
        aliases=("vllm:cache_config_info{block_size}", "sglang:page_size"),
        events=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_block_size_bytes",
        kind="gauge",
        help="Bytes of K and V of all layers in one block; absent where no tensors back the pool.",
        unit="bytes",
        least=1,
        group="pool",
        otel_name="kvscope.kv.block.size",
        events=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_usable_blocks",
        kind="gauge",
        help="Blocks that can be handed out: the capacity without the reserved ones.",
        unit="blocks",
        within="kvscope_kv_capacity_blocks",
        group="pool",
        otel_name="kvscope.kv.usable",
        events=("PoolCreated",),
    ),
    Metric(
        name="kvscope_kv_active_ratio",
        kind="gauge",
        help="Share of the usable blocks that sequences reference.",
        notes="SGLang's token usage.",
        unit="ratio",
        group="pool",
        otel_name="kvscope.kv.active_ratio",
        aliases=("vllm:kv_cache_usage_perc", "sglang:token_usage"),
        events=STATE_EVENTS,
        counted=COUNTED_STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_resident_ratio",
        kind="gauge",
        help="Share of the usable blocks that hold content: referenced ones and cached ones.",
        unit="ratio",
        group="pool",
        detail="full",
        otel_name="kvscope.kv.resident_ratio",
        events=STATE_EVENTS,
        counted=COUNTED_STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_ledger_imbalance_blocks",
        kind="gauge",
        help="Blocks by which the exporter's ledger differs from the engine's own counts; anything "
        "but 0 is a bug.",
        notes="Includes the blocks of events that contradicted the ledger since the last snapshot "
        "of the pool.",
        unit="blocks",
        group="pool",
        otel_name="kvscope.kv.ledger.imbalance",
        events=(*STATE_EVENTS, "StepCompleted"),
        counted=(*COUNTED_STATE_EVENTS, "StepCompleted"),
    ),
    Metric(
        name="kvscope_kv_shared_blocks",
        kind="gauge",
        help="Blocks with more than one reference.",
        unit="blocks",
        group="pool",
        detail="full",
        otel_name="kvscope.kv.shared",
        events=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_deduplicated_blocks",
        kind="gauge",
        help="References to blocks beyond the first of each: the blocks that sharing saves at "
        "present.",
        unit="blocks",
        group="pool",
        detail="full",
        otel_name="kvscope.kv.deduplicated",
        events=STATE_EVENTS,
        counted=COUNTED_STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_held_blocks",
        kind="gauge",
        help="Active blocks that only requests reference that have ended, by reason.",
        notes="Reasons: a connector still sends them to another server or stores them in another "
        "tier (transfer), or the request ended before a load into them did (load). Absent for an "
        "engine without a connector, and after lost events, or where the exporter came later than "
        "the engine, until all blocks that were active then have been given back.",
        unit="blocks",
        within="kvscope_kv_usable_blocks",
        group="pool",
        labels={**ENGINE, "reason": get_args(HoldReason)},
        servers=("vllm",),
        otel_name="kvscope.kv.held",
        events=(*STATE_EVENTS, "SequenceFinished"),
    ),
    Metric(
        name="kvscope_kv_oldest_hold_seconds",
        kind="gauge",
        help="Time since the end of the request that has held blocks the longest; absent while "
        "none holds any.",
        unit="seconds",
        group="pool",
        servers=("vllm",),
        otel_name="kvscope.kv.oldest_hold",
        events=(*STATE_EVENTS, "SequenceFinished"),
    ),
    Metric(
        name="kvscope_kv_unfilled_slots",
        kind="gauge",
        help="Token slots of active blocks that were not written at the last step: internal "
        "fragmentation.",
        unit="slots",
        group="pool",
        otel_name="kvscope.kv.unfilled_slots",
        events=(*STATE_EVENTS, "StepCompleted"),
    ),
    Metric(
        name="kvscope_kv_block_allocations_total",
        kind="counter",
        help="Blocks handed out, by cause: prefill, decode, a copy of a shared block before a "
        "write (cow), or a sequence that is swapped in.",
        unit="blocks",
        group="pool",
        detail="full",
        labels={**ENGINE, "cause": get_args(AllocationCause)},
        otel_name="kvscope.kv.block.allocations",
        events=("BlocksAllocated",),
        counted=("PagesAllocated",),
    ),
    Metric(
        name="kvscope_kv_block_releases_total",
        kind="counter",
        help="References to blocks given back, by cause.",
        notes="Causes: the sequence finished (in a vLLM with stop strings: or was aborted), was "
        "aborted or preempted (swapped_out: with a copy on the host), the block left its attention "
        "window (out_of_window), holds a state that a newer one replaced (superseded; only of "
        "models with states), was copied before a write (cow), was pinned only for a while "
        "(unpinned), its content could not be loaded (failed_load), or equal blocks of another "
        "sequence are used instead (duplicate; only of counted pools).",
        unit="blocks",
        group="pool",
        detail="full",
        labels={**ENGINE, "cause": (*get_args(ReleaseCause), "superseded", "duplicate")},
        otel_name="kvscope.kv.block.releases",
        events=("BlocksReleased",),
        counted=("PagesReleased",),
    ),
    Metric(
        name="kvscope_kv_block_evictions_total",
        kind="counter",
        help="Cached blocks that lost their content, by cause: to make room (capacity), a reset of "
        "the cache, or on request (ordered).",
        unit="blocks",
        group="pool",
        lean_without=("cause",),
        labels={**ENGINE, "cause": get_args(EvictionCause)},
        otel_name="kvscope.kv.block.evictions",
        aliases=("sglang:evicted_tokens_total",),
        events=("BlocksEvicted",),
        counted=("PagesEvicted",),
    ),
    Metric(
        name="kvscope_kv_block_copies_total",
        kind="counter",
        help="Shared blocks that were copied because one of their sequences was about to write to "
        "them (copy-on-write).",
        unit="blocks",
        group="pool",
        detail="full",
        otel_name="kvscope.kv.block.copies",
        events=("BlockCopied",),
    ),
    Metric(
        name="kvscope_kv_swapped_blocks_total",
        kind="counter",
        help="Blocks copied between the pool and the host's swap pool, by direction.",
        unit="blocks",
        group="pool",
        detail="full",
        labels={**ENGINE, "direction": get_args(SwapDirection)},
        otel_name="kvscope.kv.swapped",
        events=("BlocksSwapped",),
    ),
    Metric(
        name="kvscope_kv_swap_blocks",
        kind="gauge",
        help="Blocks of the host's swap pool by state: used by swapped-out sequences, or free.",
        notes="With too few free blocks, victims are recomputed.",
        unit="blocks",
        group="pool",
        labels={**ENGINE, "state": ("used", "free")},
        otel_name="kvscope.kv.swap",
        aliases=("vllm:cpu_cache_usage_perc",),
        events=("PoolCreated", "BlocksSwapped"),
    ),
    Metric(
        name="kvscope_kv_allocation_failures_total",
        kind="counter",
        help="Times that the pool could not serve a running sequence, which leads to preemption.",
        unit="failures",
        group="pool",
        otel_name="kvscope.kv.allocation_failures",
        events=("AllocationFailed",),
    ),
)
