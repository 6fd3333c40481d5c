"""Page: values from servers' own pages that cannot be folded from events.

For servers without events, or with only some of them: their counts of tokens, and of the tiers
below the device's own pool where KV is kept.
"""

from typing import get_args

from kvscope_events.vocabulary import Tier
from kvscope_exporter.catalogue.http import STATUSES
from kvscope_exporter.catalogue.metric import ENGINE, Labels, Metric

_BY_TIER: Labels = {**ENGINE, "tier": get_args(Tier)}


PAGE = (
    Metric(
        name="kvscope_api_responses_total",
        kind="counter",
        help="POST requests answered by the server's API, by class of status.",
        notes="Only where the server's own metrics are read. 5xx contains requests that ended "
        "with an error before the first byte of the answer, and those refused for a full queue, "
        "which other families count as well. An error in the middle of a stream has status 200.",
        unit="responses",
        group="page",
        labels={**ENGINE, "status": STATUSES},
        otel_name="kvscope.api.responses",
        aliases=("http_requests_total", "sglang:http_responses_total"),
    ),
    Metric(
        name="kvscope_generated_tokens_total",
        kind="counter",
        help="Tokens generated for requests, as the server counts them.",
        unit="tokens",
        group="page",
        detail="full",
        otel_name="kvscope.generated_tokens",
        aliases=("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
    ),
    Metric(
        name="kvscope_kv_tier_queried_tokens_total",
        kind="counter",
        help="Tokens looked up in the tiers below the device's own pool, by tier.",
        unit="tokens",
        group="page",
        labels=_BY_TIER,
        otel_name="kvscope.kv.tier.queried_tokens",
        events=("PrefixLookup", "TierCreated"),
        aliases=("vllm:external_prefix_cache_queries_total",),
    ),
    Metric(
        name="kvscope_kv_tier_hit_tokens_total",
        kind="counter",
        help="Prompt tokens whose KV was found, by the tier that held it.",
        unit="tokens",
        notes="From events these are first lookups of an observed vLLM, equal to its own counters.",
        group="page",
        labels=_BY_TIER,
        otel_name="kvscope.kv.tier.hit_tokens",
        events=("PrefixLookup", "PoolCreated"),
        servers=("vllm",),
        aliases=(
            "vllm:prompt_tokens_cached_by_source_total",
            "sglang:prefill_effective_tokens_total",
        ),
    ),
    Metric(
        name="kvscope_kv_tier_used_ratio",
        kind="gauge",
        help="Share of a tier's capacity for KV that is in use, by tier, as the server defines it.",
        unit="ratio",
        group="page",
        labels=_BY_TIER,
        otel_name="kvscope.kv.tier.used_ratio",
        events=("NamesStored", "NamesRemoved", "TierCreated"),
        aliases=("sglang:hicache_host_used_tokens",),
    ),
)
