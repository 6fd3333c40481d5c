"""LMCache: in the process of its engine, whose page has it, or as a server of its own.

In process the names begin with `lmcache:`, on its own page with `lmcache_mp_`. Tokens are those of
whole chunks. Only what the engine's own cache missed is looked up there.
"""

from exporter.readings.labels import counter, gauge
from exporter.readings.row import Identity, Row, Table

_ANY_TIER = "LMCache does not export which of its tiers it was"

IN_PROCESS = (
    Row(
        family="kvscope_kv_tier_queried_tokens_total",
        labels={"tier": "other"},
        value=counter("lmcache:num_requested_tokens"),
        worth="passed through",
        reason=_ANY_TIER,
    ),
    Row(
        family="kvscope_kv_tier_hit_tokens_total",
        labels={"tier": "other"},
        value=counter("lmcache:num_hit_tokens"),
        worth="passed through",
        reason=_ANY_TIER,
    ),
    *(
        Row(
            family="kvscope_kv_tier_used_bytes",
            labels={"tier": tier},
            value=gauge(name),
            worth="bound",
            reason="lower bound: one worker, where several hold parts of the same content",
        )
        for tier, name in (
            ("host", "lmcache:local_cache_usage"),
            ("disk", "lmcache:local_storage_usage"),
            ("remote", "lmcache:remote_cache_usage"),
        )
    ),
)

_OWN_PAGE = (
    Row(
        family="kvscope_kv_tier_queried_tokens_total",
        labels={"tier": "other"},
        value=counter("lmcache_mp_lookup_requested"),
        worth="passed through",
        reason=_ANY_TIER,
    ),
    Row(
        family="kvscope_kv_tier_hit_tokens_total",
        labels={"tier": "host"},
        value=counter("lmcache_mp_lookup_hit_l1"),
        worth="passed through",
        reason="L1, in the memory of its process",
    ),
    Row(
        family="kvscope_kv_tier_hit_tokens_total",
        labels={"tier": "other"},
        value=counter("lmcache_mp_lookup_hit_l2"),
        worth="passed through",
        reason="L2, of any kind",
    ),
)

LMCACHE = Table(
    server="lmcache",
    rows=(*IN_PROCESS, *_OWN_PAGE),
    identity=Identity(ranks=("worker_id",), may_be_repeated=False),
    note="LMCache in its engine's process is read with the engine's page: set `kind` to the "
    "engine's. Its rows there, `lmcache:…`, are listed under vLLM.",
    absent={
        "kvscope_kv_block_evictions_total": "local_cpu_evict_keys_count counts chunks in host "
        "memory",
        "kvscope_kv_tier_used_ratio": "LMCache does not export the size of a tier",
    },
)
