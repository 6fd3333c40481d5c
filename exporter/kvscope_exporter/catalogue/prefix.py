"""Prefix cache: queries, hits, and the causes of misses."""

from kvscope_exporter.catalogue.metric import ENGINE, Labels, Metric

PHASES = ("first", "resumed")
MISS_CAUSES = ("cold", "evicted", "forgotten", "unreachable", "vetoed", "partial")
WHATIF_SCALES = ("0.25", "0.5", "0.75", "1", "1.5", "2", "4", "inf")

_BY_PHASE: Labels = {**ENGINE, "phase": PHASES}
_WHATIF_EVENTS = (
    *("PrefixLookup", "PoolCreated", "BlocksAllocated", "BlocksShared", "BlocksCached"),
    *("BlocksEvicted", "BlocksReleased"),
)
_WHATIF_COUNTED = ("PrefixLookup", "PoolCounted", "PagesReleased", "NamesStored", "NamesRemoved")

PREFIX = (
    Metric(
        name="kvscope_prefix_cache_queried_tokens_total",
        kind="counter",
        help=("Tokens looked up in the prefix cache, by phase: first admission or resumption."),
        unit="tokens",
        group="prefix",
        lean_values={"phase": ("first",)},
        labels=_BY_PHASE,
        otel_name="kvscope.prefix_cache.queried_tokens",
        aliases=("vllm:prefix_cache_queries_total", "sglang:prompt_tokens_total"),
        events=("PrefixLookup", "PoolCreated"),
    ),
    Metric(
        name="kvscope_prefix_cache_hit_tokens_total",
        kind="counter",
        help="Tokens that the prefix cache held when it was queried, by phase.",
        unit="tokens",
        within="kvscope_prefix_cache_queried_tokens_total",
        group="prefix",
        lean_values={"phase": ("first",)},
        labels=_BY_PHASE,
        otel_name="kvscope.prefix_cache.hit_tokens",
        aliases=("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total"),
        events=("PrefixLookup", "PoolCreated"),
    ),
    Metric(
        name="kvscope_prefix_cache_queried_blocks_total",
        kind="counter",
        help="Blocks looked up in the prefix cache, by phase; hits and misses sum to it.",
        notes="The last, partial block is included.",
        unit="blocks",
        group="prefix",
        detail="full",
        labels=_BY_PHASE,
        otel_name="kvscope.prefix_cache.queried_blocks",
        events=("PrefixLookup", "PoolCreated"),
    ),
    Metric(
        name="kvscope_prefix_cache_hit_blocks_total",
        kind="counter",
        help="Blocks that the prefix cache held when it was queried, by phase.",
        unit="blocks",
        within="kvscope_prefix_cache_queried_blocks_total",
        group="prefix",
        detail="full",
        labels=_BY_PHASE,
        otel_name="kvscope.prefix_cache.hit_blocks",
        events=("PrefixLookup", "PoolCreated"),
    ),
    Metric(
        name="kvscope_prefix_cache_missed_blocks_total",
        kind="counter",
        help="Blocks looked up in the prefix cache and missed, by cause.",
        notes="cold: not seen since the exporter began to watch. evicted: among the last 524,288 "
        "blocks that were evicted. forgotten: evicted before those; at least the last 4 million "
        "are remembered, and less than 1 % of the cold are taken for forgotten. unreachable: it is "
        "in the cache, but a block before it is not. vetoed: it is in the cache with all blocks "
        "before it, but another group of layers (sliding windows, states) lacks its part, or a "
        "draft model needs it computed. partial: the end of the sequence, which cannot hit. After "
        "lost events all causes but partial are absent until a snapshot.",
        unit="blocks",
        group="prefix",
        detail="full",
        labels={**ENGINE, "cause": MISS_CAUSES},
        otel_name="kvscope.prefix_cache.missed_blocks",
        events=("PrefixLookup", "PoolCreated", "BlocksCached", "BlocksEvicted"),
        counted=("PrefixLookup", "PoolCounted", "NamesStored", "NamesRemoved"),
    ),
    Metric(
        name="kvscope_prefix_cache_resets_total",
        kind="counter",
        help="Times that the prefix cache was cleared on request; the hit ratio falls afterwards.",
        unit="resets",
        group="prefix",
        detail="full",
        otel_name="kvscope.prefix_cache.resets",
        events=("PrefixCacheReset", "PrefixLookup"),  # without a prefix cache there are no resets
    ),
    Metric(
        name="kvscope_prefix_cache_whatif_hit_blocks_total",
        kind="counter",
        help="Predicted prefix cache hits with a KV cache of `scale` times its size.",
        notes="A scale of 2 is a pool of twice as many blocks; inf is a cache that never loses "
        "anything, not even by a reset, since the exporter began to watch. Exact if the same "
        "requests come at the same times and run for as long. While requests wait, the hits of "
        "a larger pool are no more than this: it would admit them earlier, and equal beginnings "
        "that are computed at the same time are not found. A scale is absent while what such a "
        "pool would hold is not known: after a snapshot, until the pool has handed out as many "
        "blocks as the scale means; beyond 524,288 blocks more than the pool has; inf, once "
        "names have been forgotten. In a pool of several groups of layers the scales are "
        "simulated, and absent while the simulated pool of the present size differs from the "
        "engine's own hits by more than 1 % of the blocks looked up in five minutes; a scale "
        "below 1 is absent while running requests alone would have needed more blocks. In a "
        "counted pool, and with a drafter that has the last block found computed again, all "
        "scales are absent while the prediction for the present size differs that much.",
        unit="blocks",
        group="prefix",
        labels={**ENGINE, "scale": WHATIF_SCALES},
        otel_name="kvscope.prefix_cache.whatif.hit_blocks",
        events=_WHATIF_EVENTS,
        counted=_WHATIF_COUNTED,
    ),
    Metric(
        name="kvscope_prefix_cache_whatif_queried_blocks_total",
        kind="counter",
        help="Blocks that could have hit, for kvscope_prefix_cache_whatif_hit_blocks_total.",
        unit="blocks",
        group="prefix",
        otel_name="kvscope.prefix_cache.whatif.queried_blocks",
        events=_WHATIF_EVENTS,
        counted=_WHATIF_COUNTED,
    ),
    Metric(
        name="kvscope_prefix_cache_whatif_error_blocks_total",
        kind="counter",
        help="Difference of predicted and real hits at the present size: self-check, near 0.",
        notes="Summed over lookups. It stays near 0 if the engine evicts the block that was "
        "released first, and releases the tail of a sequence first. In a pool of several groups of "
        "layers it says how far their simulation is off.",
        unit="blocks",
        group="prefix",
        otel_name="kvscope.prefix_cache.whatif.error_blocks",
        events=_WHATIF_EVENTS,
        counted=_WHATIF_COUNTED,
    ),
)
