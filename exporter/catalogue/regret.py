"""What early eviction cost, and what the cache saved by prefix."""

from exporter.buckets import REGRET_AGE_SECONDS
from exporter.catalogue.metric import ENGINE, Metric
from exporter.catalogue.pool import STATE_EVENTS

_EVICTED = ("PrefixLookup", "PoolCreated", "BlocksCached", "BlocksEvicted")

REGRET = (
    Metric(
        name="kvscope_prefix_cache_regret_tokens_total",
        kind="counter",
        help="Prompt tokens computed again because their blocks, among the last 524,288 evicted, "
        "were gone when their sequence was first admitted. A resumed sequence does not count: what "
        "it lost is the cost of its preemption.",
        unit="tokens",
        group="prefix",
        otel_name="kvscope.prefix_cache.regret_tokens",
        events=_EVICTED,
    ),
    Metric(
        name="kvscope_prefix_cache_regret_age_seconds",
        kind="histogram",
        help="Time from the eviction of a block to the lookup that missed it, for every block of "
        "kvscope_prefix_cache_regret_tokens_total but those evicted in lost events.",
        unit="seconds",
        group="prefix",
        buckets=REGRET_AGE_SECONDS,
        otel_name="kvscope.prefix_cache.regret_age",
        events=_EVICTED,
    ),
    Metric(
        name="kvscope_kv_pool_shortfall_blocks",
        kind="gauge",
        help="How many more blocks would have kept nine tenths of the blocks that were evicted and "
        "asked for again in the last 5 minutes; up to 3.2 % too high. Absent while there were none "
        "and while more than a tenth of them would have needed more than is known: see "
        "kvscope_prefix_cache_whatif_hit_blocks_total.",
        unit="blocks",
        group="prefix",
        otel_name="kvscope.kv.pool_shortfall",
        events=(*STATE_EVENTS, "PrefixLookup"),
    ),
    Metric(
        name="kvscope_prefix_cache_top_saved_tokens_total",
        kind="counter",
        help="Tokens that first lookups found, each counted once: by the prefix that it belongs "
        "to, if that is one of the five that have saved most, otherwise in `other`. A prefix is "
        "the first eight hex digits of its last block's name. A series ends when its prefix leaves "
        "the five, and goes on from there if it comes back. /api/prefixes has the top 20.",
        unit="tokens",
        group="prefix",
        labels={**ENGINE, "prefix": None},
        otel_name="kvscope.prefix_cache.top_saved_tokens",
        events=("PrefixLookup", "PoolCreated"),
    ),
)
