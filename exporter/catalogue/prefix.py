"""Prefix cache: what was asked for, what was found, and why the rest was not."""

from exporter.catalogue.metric import ENGINE, Labels, Metric

PHASES = ("first", "resumed")
MISS_CAUSES = ("cold", "evicted", "forgotten", "unreachable", "partial")

_BY_PHASE: Labels = {**ENGINE, "phase": PHASES}

PREFIX = (
    Metric(
        name="kvscope_prefix_cache_queried_tokens_total",
        kind="counter",
        help=(
            "Tokens of the requests that asked the prefix cache, first admissions and "
            "resumptions after preemption apart."
        ),
        unit="tokens",
        group="prefix",
        labels=_BY_PHASE,
        otel_name="kvscope.prefix_cache.queried_tokens",
        aliases=("vllm:prefix_cache_queries_total", "sglang:prompt_tokens_total"),
        source=("PrefixLookup",),
    ),
    Metric(
        name="kvscope_prefix_cache_hit_tokens_total",
        kind="counter",
        help="Tokens that the prefix cache held when it was asked.",
        unit="tokens",
        group="prefix",
        labels=_BY_PHASE,
        otel_name="kvscope.prefix_cache.hit_tokens",
        aliases=("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total"),
        source=("PrefixLookup",),
    ),
    Metric(
        name="kvscope_prefix_cache_queried_blocks_total",
        kind="counter",
        help=(
            "Blocks of the requests that asked the prefix cache, the last partial one included: "
            "hit blocks and missed blocks sum to it."
        ),
        unit="blocks",
        group="prefix",
        labels=_BY_PHASE,
        otel_name="kvscope.prefix_cache.queried_blocks",
        source=("PrefixLookup",),
    ),
    Metric(
        name="kvscope_prefix_cache_hit_blocks_total",
        kind="counter",
        help="Blocks that the prefix cache held when it was asked.",
        unit="blocks",
        group="prefix",
        labels=_BY_PHASE,
        otel_name="kvscope.prefix_cache.hit_blocks",
        aliases=("trtllm_kv_cache_reused_blocks_total",),
        source=("PrefixLookup",),
    ),
    Metric(
        name="kvscope_prefix_cache_missed_blocks_total",
        kind="counter",
        help=(
            "Blocks asked for and not found, by cause: cold (not seen since the exporter watches), "
            "evicted (it was here), unreachable (it is here, but an ancestor is gone), partial "
            "(the end of the request, too short for a block that may hit). cold and evicted are "
            "absent once more names have been seen than are remembered."
        ),
        unit="blocks",
        group="prefix",
        labels={**ENGINE, "cause": MISS_CAUSES},
        otel_name="kvscope.prefix_cache.missed_blocks",
        aliases=("trtllm_kv_cache_missed_blocks_total",),
        source=("PrefixLookup", "BlocksCached", "BlocksEvicted", "PoolCreated", "PoolSnapshot"),
    ),
)
