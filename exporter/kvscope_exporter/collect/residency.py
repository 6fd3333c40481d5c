"""Families from the ages of blocks: residency, retention, regret; and the top prefixes."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.collect.families import Families
from kvscope_exporter.state import Cache


def collect_retention(families: Families, cache: Cache, _engine: Hello) -> Iterator[Family]:
    """Absent while the state is unknown."""
    oldest_ns = cache.residency.oldest_idle_ns() if cache.known else None
    if oldest_ns is not None:
        retention_ns = _now_ns(families, cache) - oldest_ns
        yield families.single("kvscope_kv_retention_seconds", max(0, retention_ns) / 1e9)


def collect_vllm_residency(families: Families, cache: Cache, _engine: Hello) -> Iterator[Family]:
    residency = cache.residency
    for name, histogram in (
        ("lifetime", residency.lifetime_seconds),
        ("idle_before_evict", residency.idle_seconds),
        ("reuse_gap", residency.reuse_seconds),
    ):
        yield families.histogram(f"vllm:kv_block_{name}_seconds", histogram)


def collect_regret(families: Families, cache: Cache, _engine: Hello) -> Iterator[Family]:
    """Sums without events lost in gaps; no shortfall while the state is unknown."""
    regret = cache.regret
    yield families.single("kvscope_prefix_cache_regret_tokens_total", regret.tokens)
    shown = cache.prefixes.shown
    yield families.column(
        "kvscope_prefix_cache_top_saved_tokens_total", {**shown.tokens, "other": shown.other}
    )
    shortfall = regret.shortfall_blocks(_now_ns(families, cache)) if cache.known else None
    if shortfall is not None:
        yield families.single("kvscope_kv_pool_shortfall_blocks", shortfall)


def _now_ns(families: Families, cache: Cache) -> int:
    """The present on the producer's clock: an idle producer sends no batch, but time passes."""
    return cache.batch.time_ns + round(families.age(cache.batch.arrived_ns) * 1e9)
