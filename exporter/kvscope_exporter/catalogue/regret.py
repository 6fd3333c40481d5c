"""The cost of early evictions, and the cache's savings by prefix."""

from kvscope_exporter.catalogue.metric import ENGINE, Metric
from kvscope_exporter.catalogue.pool import STATE_EVENTS

_COUNTED = ("PrefixLookup", "PoolCounted", "NamesStored", "NamesRemoved")
_EVICTED = ("PrefixLookup", "PoolCreated", "BlocksCached", "BlocksEvicted")

REGRET = (
    Metric(
        name="kvscope_prefix_cache_regret_tokens_total",
        kind="counter",
        help="Prompt tokens computed again at first admission because their blocks had been "
        "evicted.",
        notes="Evicted blocks are known if they are among the last 524,288. What a tier below the "
        "pool or a connector supplies is not computed again, and does not count. Neither does a "
        "resumed sequence: what it lost is the cost of its preemption. In a pool of several groups "
        "of layers, blocks that are still there count if a kind of layers vetoed them because its "
        "own part had been evicted.",
        unit="tokens",
        group="prefix",
        otel_name="kvscope.prefix_cache.regret_tokens",
        events=_EVICTED,
        counted=_COUNTED,
    ),
    Metric(
        name="kvscope_kv_pool_shortfall_blocks",
        kind="gauge",
        help="Extra KV blocks that would have avoided nine tenths of the last five minutes' "
        "regret.",
        notes="Up to 3.2 % too high. Absent while nothing evicted was requested again, and while "
        "more than a tenth of it would have needed more than is known: see "
        "kvscope_prefix_cache_whatif_hit_blocks_total.",
        unit="blocks",
        group="prefix",
        otel_name="kvscope.kv.pool_shortfall",
        events=(*STATE_EVENTS, "PrefixLookup"),
        counted=(*_COUNTED, "PagesReleased"),
    ),
    Metric(
        name="kvscope_prefix_cache_top_saved_tokens_total",
        kind="counter",
        help="Prompt tokens saved by the five best prefixes, and `other`.",
        notes="Each token is counted once. A prefix is the first eight hex digits of its last "
        "block's name. A series ends when its prefix leaves the five, and goes on from there if it "
        "comes back. /api/prefixes has the top 20.",
        unit="tokens",
        group="prefix",
        detail="full",
        labels={**ENGINE, "prefix": None},
        otel_name="kvscope.prefix_cache.top_saved_tokens",
        events=("PrefixLookup", "PoolCreated"),
    ),
)
