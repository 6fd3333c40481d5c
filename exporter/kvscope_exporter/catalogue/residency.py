"""Residency: how long blocks stay in the pool, and how far back the cache reaches."""

from kvscope_exporter.catalogue.metric import Metric
from kvscope_exporter.catalogue.pool import STATE_EVENTS
from kvscope_exporter.state.buckets import RESIDENCY_SECONDS

_UNKNOWN = "What began before the exporter started, or in lost events, is left out."

RESIDENCY = (
    Metric(
        name="kvscope_kv_block_lifetime_seconds",
        kind="histogram",
        help="Time from when a block could be found until it was evicted for room.",
        notes="Blocks that are still resident are not counted: /api/residency has their ages. "
        + _UNKNOWN,
        unit="seconds",
        group="pool",
        detail="full",
        buckets=RESIDENCY_SECONDS,
        otel_name="kvscope.kv.block.lifetime",
        events=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_block_idle_before_eviction_seconds",
        kind="histogram",
        help="Idle time of blocks when they were evicted for room; later prompts miss them.",
        notes=_UNKNOWN,
        unit="seconds",
        group="pool",
        detail="full",
        buckets=RESIDENCY_SECONDS,
        otel_name="kvscope.kv.block.idle_before_eviction",
        events=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_block_reuse_gap_seconds",
        kind="histogram",
        help="Time from a block's last reference to the prefix hit that used it again.",
        notes="Only of blocks without a reference when they were hit; resumed sequences are "
        "included. " + _UNKNOWN,
        unit="seconds",
        group="pool",
        detail="full",
        buckets=RESIDENCY_SECONDS,
        otel_name="kvscope.kv.block.reuse_gap",
        events=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_retention_seconds",
        kind="gauge",
        help="How far back the prefix cache remembers: idle time of the next block to be evicted.",
        notes="While there are free blocks nothing is evicted, and it grows with time. Absent "
        "while no block can be evicted, and while that reference is older than the exporter.",
        unit="seconds",
        group="pool",
        otel_name="kvscope.kv.retention",
        events=STATE_EVENTS,
    ),
)
