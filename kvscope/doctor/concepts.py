"""Facts that an operator can learn about a server, one line each, and the depths that show them."""

from typing import NamedTuple

from kvscope_events.producers import (
    CONTENT_EVENTS,
    ENGINE_EVENTS,
    KV_STREAM_EVENTS,
    SGLANG_EVENTS,
    VLLM_EVENTS,
)
from kvscope_events.vocabulary import ServerKind
from kvscope_exporter.catalogue import CATALOGUE, metric
from kvscope_exporter.scrape import TABLES


class Concept(NamedTuple):
    text: str
    families: tuple[str, ...]
    """It is known if one of these families is."""


CONCEPTS = (
    Concept("requests running and waiting", ("kvscope_requests",)),
    Concept("request latencies: queue and total", ("kvscope_request_queue_seconds",)),
    Concept("prefix cache hits", ("kvscope_prefix_cache_hit_tokens_total",)),
    Concept("blocks in use", ("kvscope_kv_blocks",)),
    Concept(
        "blocks that are free, and those that hold reusable content",
        ("kvscope_kv_resident_ratio", "kvscope_kv_tier_blocks"),
    ),
    Concept("preemptions", ("kvscope_preemptions_total",)),
    Concept(
        "what preemptions cost: tokens computed again, time stalled",
        ("kvscope_preemption_recomputed_tokens_total",),
    ),
    Concept(
        "why prefixes were missed: never seen, evicted, unreachable, vetoed",
        ("kvscope_prefix_cache_missed_blocks_total",),
    ),
    Concept("evictions by cause", ("kvscope_kv_block_evictions_total",)),
    Concept("shared blocks", ("kvscope_kv_shared_blocks",)),
    Concept("steps: duration and tokens", ("kvscope_step_duration_seconds",)),
    Concept("when the pool will run out", ("kvscope_kv_time_to_exhaustion_seconds",)),
    Concept("how the pool was sized, term by term", ("kvscope_kv_pool_sizing_bytes",)),
    Concept("the engine's share of device memory", ("kvscope_gpu_torch_reserved_bytes",)),
)
"""The most useful first."""
assert all(metric(family) for concept in CONCEPTS for family in concept.families)

OBSERVED: dict[ServerKind, frozenset[str]] = {
    "kvscope": ENGINE_EVENTS,
    "vllm": VLLM_EVENTS,
    "sglang": SGLANG_EVENTS | CONTENT_EVENTS,
}
"""Events that an observer reports, by kind of server; other kinds have no observer."""


def lost(kind: ServerKind, *, page: bool, events: bool, observer: bool) -> list[str]:
    """Concepts that are not known with these attachments."""
    known: set[str] = set()
    if page:
        known |= {row.family for table in TABLES.get(kind, ()) for row in table.rows}
    if events:
        known |= _told_by(KV_STREAM_EVENTS)
    if observer:
        known |= _told_by(OBSERVED.get(kind, frozenset()))
    return [concept.text for concept in CONCEPTS if known.isdisjoint(concept.families)]


def _told_by(tells: frozenset[str]) -> set[str]:
    return {row.name for row in CATALOGUE if row.events and row.is_observable(tells, None)}
