"""llama.cpp's server: `llamacpp:*` with --metrics, without labels; nothing about its KV cache."""

from kvscope_exporter.scrape.labels import counter, gauge
from kvscope_exporter.scrape.row import Identity, Row, Table, last_step

_CACHED = counter("llamacpp:prompt_tokens_cached")
_PROMPT = counter("llamacpp:prompt_tokens") + _CACHED
_ADDED = "the sum of computed and cached prompt tokens, which llama.cpp counts separately"

LLAMA_CPP = Table(
    server="llama.cpp",
    rows=(
        Row(
            family="kvscope_requests",
            labels={"state": "running"},
            value=gauge("llamacpp:requests_processing"),
            worth="bound",
            reason="counts tasks, of which a call with n > 1 has several: upper bound",
        ),
        Row(
            family="kvscope_requests",
            labels={"state": "waiting"},
            value=gauge("llamacpp:requests_deferred"),
            worth="bound",
            reason="counts tasks, of which a call with n > 1 has several: upper bound",
        ),
        Row(
            family="kvscope_prefix_cache_queried_tokens_total",
            labels={"phase": "first"},
            value=_PROMPT,
            reason=_ADDED,
        ),
        Row(
            family="kvscope_prefix_cache_hit_tokens_total",
            labels={"phase": "first"},
            value=_CACHED,
        ),
        last_step(counter("llamacpp:n_decode")),
        Row(
            family="kvscope_generated_tokens_total",
            value=counter("llamacpp:tokens_predicted"),
        ),
    ),
    identity=Identity(),
    absent={
        "kvscope_kv_active_ratio": "kv_cache_usage_ratio was removed; see GET /slots",
        "kvscope_kv_usable_tokens": "llama.cpp does not export it",
        "kvscope_preemptions_total": "llama.cpp does not preempt",
        "kvscope_time_to_first_token_seconds": "llama.cpp exports no histograms",
    },
)
