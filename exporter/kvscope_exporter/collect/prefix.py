"""Prefix cache families."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.collect.families import Families
from kvscope_exporter.state import Cache
from kvscope_exporter.state.cache import WhatIf
from kvscope_exporter.state.simulation import Shadows


def collect_prefix(families: Families, cache: Cache, engine: Hello) -> Iterator[Family]:
    """Counters; missed blocks have only the causes that can be distinguished now."""
    yield families.column("kvscope_prefix_cache_queried_tokens_total", cache.queried_tokens)
    yield families.column("kvscope_prefix_cache_hit_tokens_total", cache.hit_tokens)
    yield families.column("kvscope_prefix_cache_queried_blocks_total", cache.queried_blocks)
    yield families.column("kvscope_prefix_cache_hit_blocks_total", cache.hit_blocks)
    yield families.column("kvscope_prefix_cache_missed_blocks_total", cache.missed_blocks)
    yield families.single("kvscope_prefix_cache_resets_total", cache.resets)
    if engine.enable_prefix_caching is not False:
        yield from _collect_whatif(families, cache.whatif)


def collect_shadows(families: Families, shadows: Shadows, engine: Hello) -> Iterator[Family]:
    """The same families for several groups; no hits while they disagree with the engine's."""
    if not shadows.known:
        return
    hit_blocks = shadows.hit_blocks
    if hit_blocks:
        yield families.column("kvscope_prefix_cache_whatif_hit_blocks_total", hit_blocks)
    totals = shadows.totals
    queried, error = totals.queried_blocks, totals.error_blocks
    yield families.single("kvscope_prefix_cache_whatif_queried_blocks_total", queried)
    yield families.single("kvscope_prefix_cache_whatif_error_blocks_total", error)


def _collect_whatif(families: Families, whatif: WhatIf) -> Iterator[Family]:
    """Absent while the pool is unknown, or of a kind that is not modelled."""
    if whatif.known:
        yield families.column("kvscope_prefix_cache_whatif_hit_blocks_total", whatif.hit_blocks)
        queried, error = whatif.queried_blocks, whatif.error_blocks
        yield families.single("kvscope_prefix_cache_whatif_queried_blocks_total", queried)
        yield families.single("kvscope_prefix_cache_whatif_error_blocks_total", error)


def collect_vetoes(families: Families, cache: Cache, _engine: Hello) -> Iterator[Family]:
    """Hits that each kind alone would have allowed, and the kinds that vetoed what others had."""
    vetoes = cache.vetoes
    if vetoes.groups and vetoes.known:
        yield families.column("kvscope_prefix_cache_group_hit_tokens_total", vetoes.hit_tokens)
        yield families.table("kvscope_prefix_cache_vetoed_tokens_total", vetoes.vetoed_tokens)
