"""Prefix cache families."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from exporter.collect.families import Families
from exporter.fold import Prefix


def collect_prefix(families: Families, prefix: Prefix) -> Iterator[Family]:
    """Missed blocks only by the causes that can be told apart."""
    yield families.column("kvscope_prefix_cache_queried_tokens_total", prefix.queried_tokens)
    yield families.column("kvscope_prefix_cache_hit_tokens_total", prefix.hit_tokens)
    yield families.column("kvscope_prefix_cache_queried_blocks_total", prefix.queried_blocks)
    yield families.column("kvscope_prefix_cache_hit_blocks_total", prefix.hit_blocks)
    yield families.column("kvscope_prefix_cache_missed_blocks_total", prefix.missed_blocks)
