"""llama.cpp's server: `llamacpp:*` with --metrics, without labels; nothing of its KV cache."""

from exporter.readings.row import Identity, Row, Table
from exporter.readings.words import LastMoved, counter, gauge

_CACHED = counter("llamacpp:prompt_tokens_cached")
_PROMPT = counter("llamacpp:prompt_tokens") + _CACHED
_ADDED = "computed and cached prompt tokens, which llama.cpp counts apart"

LLAMA_CPP = Table(
    server="llama.cpp",
    rows=(
        Row(
            family="kvscope_requests",
            labels={"state": "running"},
            value=gauge("llamacpp:requests_processing"),
            worth="bound",
            reason="its tasks, of which a call with n > 1 has several: at most this many calls",
        ),
        Row(
            family="kvscope_requests",
            labels={"state": "waiting"},
            value=gauge("llamacpp:requests_deferred"),
            worth="bound",
            reason="its tasks, of which a call with n > 1 has several: at most this many calls",
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
        Row(
            family="kvscope_last_step_timestamp_seconds",
            value=LastMoved(counter("llamacpp:n_decode")),
            worth="bound",
            reason="the step ended before, by as much as lies between two readings",
        ),
        Row(family="kvscope_prompt_tokens_total", value=_PROMPT, reason=_ADDED),
        Row(
            family="kvscope_generated_tokens_total",
            value=counter("llamacpp:tokens_predicted"),
        ),
    ),
    identity=Identity(),
    absent={
        "kvscope_kv_active_ratio": "kv_cache_usage_ratio is gone; GET /slots has tokens by slot",
        "kvscope_kv_usable_tokens": "no family has it",
        "kvscope_preemptions_total": "it does not preempt",
        "kvscope_time_to_first_token_seconds": "no histograms at all",
    },
)
