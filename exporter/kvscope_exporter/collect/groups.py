"""Families by kind of layers; none for a pool of one group."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.collect.families import Families
from kvscope_exporter.state import Cache, Groups


def collect_groups(families: Families, groups: Groups, _engine: Hello) -> Iterator[Family]:
    """Blocks by kind and state, while known, and evicted ones by kind and cause."""
    if not groups.kinds:
        return
    if groups.known:
        yield families.table("kvscope_kv_group_blocks", groups.blocks)
        if groups.drafters:
            yield families.column("kvscope_kv_drafter_blocks", groups.drafter_blocks)
    yield families.table("kvscope_kv_group_evictions_total", groups.evictions)
    yield families.column("kvscope_kv_group_idle_seconds_total", groups.idle_seconds)
    yield families.column("kvscope_kv_group_idle_evictions_total", groups.idle_evictions)


def collect_vetoes(families: Families, cache: Cache, _engine: Hello) -> Iterator[Family]:
    """Hits that each kind alone would have allowed, and the kinds that vetoed what others had."""
    vetoes = cache.vetoes
    if not vetoes.groups:
        return
    if vetoes.known:
        yield families.column("kvscope_prefix_cache_group_hit_tokens_total", vetoes.hit_tokens)
        yield families.table("kvscope_prefix_cache_vetoed_tokens_total", vetoes.vetoed_tokens)
    if vetoes.alignment is not None:
        below = vetoes.below_block_tokens
        yield families.single("kvscope_prefix_cache_below_block_tokens_total", below)
