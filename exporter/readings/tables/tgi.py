"""Text Generation Inference: `tgi_*`, without labels; it exports nothing about its KV cache."""

from exporter.readings.labels import gauge, histogram, sum_of, untotalled
from exporter.readings.row import Identity, Row, Table, last_step

_IN_BUCKETS = "in TGI's buckets"

TGI = Table(
    server="tgi",
    rows=(
        Row(
            family="kvscope_kv_usable_tokens",
            value=gauge("tgi_batch_max_total_tokens"),
            worth="passed through",
            reason="the token budget, set at start; not in every version",
        ),
        Row(
            family="kvscope_kv_committed_tokens",
            value=gauge("tgi_batch_current_max_tokens"),
        ),
        Row(
            family="kvscope_requests",
            labels={"state": "waiting"},
            value=gauge("tgi_queue_size"),
        ),
        Row(
            family="kvscope_requests",
            labels={"state": "running"},
            value=gauge("tgi_batch_current_size"),
        ),
        Row(
            family="kvscope_requests_finished_total",
            value=untotalled("tgi_request_success"),
            worth="passed through",
            reason="successful requests only, without the label",
        ),
        Row(
            family="kvscope_requests_finished_total",
            labels={"reason": "error"},
            value=untotalled("tgi_request_failure", err=("generation", "incomplete")),
            reason="absent before the first one",
        ),
        *(
            Row(
                family="kvscope_requests_rejected_total",
                labels={"reason": reason},
                value=untotalled("tgi_request_failure", err=errors),
                reason="absent before the first one",
            )
            for reason, errors in (
                ("queue_full", ("overloaded",)),
                ("invalid", ("validation", "template")),
            )
        ),
        Row(
            family="kvscope_inter_token_latency_seconds",
            value=histogram("tgi_request_mean_time_per_token_duration"),
            worth="passed through",
            reason=f"one mean per request, which hides pauses, {_IN_BUCKETS}",
        ),
        Row(
            family="kvscope_request_duration_seconds",
            value=histogram("tgi_request_duration"),
            worth="passed through",
            reason=_IN_BUCKETS,
        ),
        Row(
            family="kvscope_request_queue_seconds",
            value=histogram("tgi_request_queue_duration"),
            worth="passed through",
            reason=_IN_BUCKETS,
        ),
        Row(
            family="kvscope_step_duration_seconds",
            value=histogram("tgi_batch_inference_duration"),
            worth="passed through",
            reason=f"prefill and decode steps together, {_IN_BUCKETS}",
        ),
        *last_step(untotalled("tgi_batch_inference_count")),
        Row(family="kvscope_prompt_tokens_total", value=sum_of("tgi_request_input_length")),
        Row(family="kvscope_generated_tokens_total", value=sum_of("tgi_request_generated_tokens")),
    ),
    identity=Identity(),
    absent={
        "kvscope_kv_active_ratio": "TGI exports what is committed, not what is used",
        "kvscope_kv_blocks": "TGI does not export it",
        "kvscope_prefix_cache_hit_tokens_total": "TGI does not export it",
        "kvscope_time_to_first_token_seconds": "TGI does not export it",
        "kvscope_preemptions_total": "TGI does not export it",
    },
)
