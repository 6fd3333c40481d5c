"""vLLM's series under all names from 0.8 to now, and figures derived from them.

Where a metric was renamed, both names are queried, series by series: while a fleet is upgraded,
some servers have the former one. Aggregate outside of the `or`.
"""

from dashboards.kit.queries import BY_ENGINE, known_servers, quantile_of, rate, series, up_for

USAGE = f"({series('vllm:kv_cache_usage_perc')} or {series('vllm:gpu_cache_usage_perc')})"
HITS = f"({rate('vllm:prefix_cache_hits_total')} or {rate('vllm:gpu_prefix_cache_hits_total')})"
QUERIES = (
    f"({rate('vllm:prefix_cache_queries_total')} or {rate('vllm:gpu_prefix_cache_queries_total')})"
)
_GAPS = (
    f"({rate('vllm:inter_token_latency_seconds_bucket')}"
    f" or {rate('vllm:time_per_output_token_seconds_bucket')})"
)

REFUSALS = "vllm:admission_rejections_total"
"""Since 0.32; without an engine."""
MODEL_OF_SERVER = 'model_name=~"$model",instance=~"$instance"'
"""The selector for series without a label for the engine."""

_RUNNING = series("vllm:num_requests_running")
KNOWN_SERVERS = known_servers(_RUNNING)
UP_SECONDS = up_for(_RUNNING)

STALL_WINDOW = "2m"
"""Long enough for two scrapes a minute apart, and for a prompt so long that many steps pass without
output. The same at every scrape interval: with a short one five seconds would look like a hang."""


def _within(name: str) -> str:
    return f"{series(name)}[{STALL_WINDOW}]"


STEPS = (
    f"(rate({_within('vllm:iteration_tokens_total_count')})"
    f" or rate({_within('vllm:generation_tokens_total')})"
    f" + rate({_within('vllm:prompt_tokens_total')}))"
)
"""Steps with output per second, or their tokens: 0 only while there is no output."""
STALLED = (
    f"{STEPS} == 0 and on (job, {BY_ENGINE})"
    f" (min_over_time({_within('vllm:num_requests_running')}) > 0"
    f" or min_over_time({_within('vllm:num_requests_waiting')}) > 0)"
)
"""Engines that had work all the time and gave nothing: a dead engine's gauges are served on."""


def gap(q: float) -> str:
    """Quantile of the time between two tokens."""
    return quantile_of(q, _GAPS)
