"""vLLM's series under all names from 0.8 to now, and figures derived from them.

For a renamed metric, both names are queried, series by series: while a fleet is upgraded, some
servers have the former one. Aggregate outside of the `or`.
"""

from dashboards.kit.queries import (
    BY_ENGINE,
    ENGINE,
    SERVER,
    TARGET,
    known_servers,
    peak,
    quantile_of,
    rate,
    series,
    total,
    up_for,
)
from kvscope_monitoring.formulas import share
from kvscope_monitoring.objectives import ERROR_OBJECTIVE, TTFT_OBJECTIVE

_USAGES = [series(f"vllm:{name}_cache_usage_perc") for name in ("kv", "gpu")]
USAGE = f"({' or '.join(_USAGES)})"
PEAK_USAGE = f"({' or '.join(peak(usage) for usage in _USAGES)})"
HITS = f"({rate('vllm:prefix_cache_hits_total')} or {rate('vllm:gpu_prefix_cache_hits_total')})"
QUERIES = (
    f"({rate('vllm:prefix_cache_queries_total')} or {rate('vllm:gpu_prefix_cache_queries_total')})"
)
_GAP_NAMES = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
_GAPS = f"({' or '.join(rate(f'{name}_bucket') for name in _GAP_NAMES)})"

FIRST_TOKEN, NEXT_TOKEN = "first_token", "next_token"
"""Variables: seconds that count as in time. Not those of the other dashboards, whose histograms
have different bounds."""

LATE_BUDGET, ERROR_BUDGET = 1 - TTFT_OBJECTIVE, 1 - ERROR_OBJECTIVE
"""Shares that may be late, or fail: those of the alerts."""

REFUSALS = "vllm:admission_rejections_total"
"""Since 0.32; without an engine label."""
MODEL_OF_SERVER = 'model_name=~"$model",instance=~"$instance"'
"""The selector for series without a label for the engine."""

_RUNNING = series("vllm:num_requests_running")
KNOWN_SERVERS = known_servers(_RUNNING)
UP_SECONDS = up_for(_RUNNING, ["process_start_time_seconds"])

STALL_WINDOW = "2m"
"""Long enough for two scrapes a minute apart, and for a prompt so long that many steps pass without
output. The same at every scrape interval: with a short one, five seconds would look like a hang."""


def _within(name: str) -> str:
    return f"{series(name)}[{STALL_WINDOW}]"


STEPS = (
    f"(rate({_within('vllm:iteration_tokens_total_count')})"
    f" or rate({_within('vllm:generation_tokens_total')})"
    f" + rate({_within('vllm:prompt_tokens_total')}))"
)
"""Steps with output per second, or their tokens: 0 only while there is no output."""
STALLED = (
    f"{STEPS} == 0 and on ({BY_ENGINE})"
    f" (min_over_time({_within('vllm:num_requests_running')}) > 0"
    f" or min_over_time({_within('vllm:num_requests_waiting')}) > 0)"
)
"""Engines that had work all the time without output: a dead engine's gauges are still served."""


def gap(q: float, by: str = "") -> str:
    """Quantile of the time between two tokens."""
    return quantile_of(q, _GAPS, by)


def first_tokens_in_time(by: str) -> str:
    """Share of the first tokens that came within the first variable."""
    return _in_time(("vllm:time_to_first_token_seconds",), f"${FIRST_TOKEN}", by)


def gaps_in_time(by: str) -> str:
    """Share of the tokens that came within the second variable after the previous one."""
    return _in_time(_GAP_NAMES, f"${NEXT_TOKEN}", by)


def _in_time(names: tuple[str, ...], limit: str, by: str) -> str:
    within = f'le=~"{limit}([.]0)?",{ENGINE}'
    timely, every = (
        total(" or ".join(rates), by)
        for rates in (
            [rate(f"{name}_bucket", within) for name in names],
            [rate(f"{name}_count") for name in names],
        )
    )
    return share(timely, every)


def error_share(by: str) -> str:
    """Requests that the engine ended with an error, over all but those that clients gave up."""
    ends = "vllm:request_success_total"
    failed = rate(ends, finished_reason="error")
    judged = rate(ends, f'{ENGINE},finished_reason!="abort"')
    return share(total(failed, by), total(judged, by))


def http_error_share() -> str:
    """Answers with 5xx over all answers to POST, by server; 0 while there were no answers.

    Includes requests that never reach an engine, or find it dead. Many programs have such a
    counter.
    """
    every = total(rate("http_requests_total", f'{SERVER},method="POST"'), TARGET)
    failed = total(rate("http_requests_total", f'{SERVER},method="POST",status="5xx"'), TARGET)
    return f"({share(f'({failed} or 0 * {every})', every)}) and on ({TARGET}) {KNOWN_SERVERS}"
