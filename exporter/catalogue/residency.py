"""Residency: how long blocks stay in the pool, and how long the cache remembers."""

from exporter.buckets import RESIDENCY_SECONDS
from exporter.catalogue.metric import Metric
from exporter.catalogue.pool import STATE_EVENTS

_UNKNOWN = (
    "Blocks whose beginning was before the exporter watched, or in lost events, are left out."
)

RESIDENCY = (
    Metric(
        name="kvscope_kv_block_lifetime_seconds",
        kind="histogram",
        help="Time from findable by prefix lookups to evicted for want of room, of every block "
        "evicted. Blocks that are still resident are not in it: /api/residency has their ages. "
        + _UNKNOWN,
        unit="seconds",
        group="pool",
        buckets=RESIDENCY_SECONDS,
        otel_name="kvscope.kv.block.lifetime",
        events=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_block_idle_before_eviction_seconds",
        kind="histogram",
        help="Time from a block's last reference to its eviction for want of room, of every block "
        "evicted: a prompt that comes back later than this finds nothing. " + _UNKNOWN,
        unit="seconds",
        group="pool",
        buckets=RESIDENCY_SECONDS,
        otel_name="kvscope.kv.block.idle_before_eviction",
        events=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_block_reuse_gap_seconds",
        kind="histogram",
        help="Time from a block's last reference to the next one by a prefix hit, of every block "
        "that nobody referenced when it was hit; resumed sequences included. " + _UNKNOWN,
        unit="seconds",
        group="pool",
        buckets=RESIDENCY_SECONDS,
        otel_name="kvscope.kv.block.reuse_gap",
        events=STATE_EVENTS,
    ),
    Metric(
        name="kvscope_kv_retention_seconds",
        kind="gauge",
        help="How long nobody has referenced the block that is evicted next: so long the cache "
        "remembers. While there are free blocks nothing is evicted, and it grows with time. Absent "
        "while no block can be evicted, and while that time is before the exporter watched.",
        unit="seconds",
        group="pool",
        otel_name="kvscope.kv.retention",
        events=STATE_EVENTS,
    ),
)
