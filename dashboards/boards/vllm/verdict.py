"""vLLM, first row: is anything wrong?"""

from dashboards.boards.vllm.series import (
    HITS,
    KNOWN_SERVERS,
    MODEL_OF_SERVER,
    QUERIES,
    REFUSALS,
    STALLED,
    STEPS,
    USAGE,
)
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, RATIO, SECONDS, Q, numbers
from dashboards.kit.queries import or_zero, over_range, quantile, series, total, worst
from monitoring.formulas import share


def row() -> Row:
    return Row(
        100,
        "Is anything wrong?",
        [
            numbers(
                101,
                "Servers silent",
                "Servers seen in this time range that do not answer Prometheus now. Not 0: is the "
                "process alive?",
                COUNT,
                Q(or_zero(f"sum((1 - up) * on (job, instance) {KNOWN_SERVERS})"), ""),
                steps=limits.NONE_IS_GOOD,
                span=3,
            ),
            numbers(
                107,
                "Stalled",
                "Engines that have had requests running or waiting for two minutes and delivered "
                "no token in that time. Not 0: /health may still say 200; read the log, then "
                "restart that server.",
                COUNT,
                Q(f"count({STALLED}) or 0 * count({STEPS})", ""),
                steps=limits.NONE_IS_GOOD,
                span=3,
                when_absent="unknown",
            ),
            numbers(
                102,
                "Fullest KV cache",
                "Share of the blocks that requests reference, in the engine where it is highest. "
                "Red: the next burst preempts. Add replicas, raise --gpu-memory-utilization, or "
                "lower --max-num-seqs.",
                RATIO,
                Q(worst(USAGE), ""),
                steps=limits.POOL_USAGE,
                span=3,
            ),
            numbers(
                103,
                "Waiting",
                "Requests that wait. If it stays above 0 with a full cache, there is too much "
                "load; with a cache that is not full, raise --max-num-seqs.",
                COUNT,
                Q(total(series("vllm:num_requests_waiting")), ""),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                span=3,
            ),
            numbers(
                104,
                "First token p95",
                "95 of 100 requests have their first token within this time. Red: compare with the "
                "queue below.",
                SECONDS,
                Q(quantile(0.95, "vllm:time_to_first_token_seconds"), ""),
                steps=limits.FIRST_TOKEN_SECONDS,
                span=3,
                when_absent="idle",
            ),
            numbers(
                105,
                "Preemptions",
                "In the time range on screen. vLLM counts them when a victim goes on, not how many "
                "tokens it lost. Many: lower --max-num-seqs.",
                COUNT,
                Q(or_zero(total(over_range("vllm:num_preemptions_total"))), ""),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                span=3,
                decimals=0,
            ),
            numbers(
                106,
                "Prefix hit ratio",
                "Share of prompt tokens found in the cache. Good depends on the workload; a fall "
                "against its own past is what to look for.",
                RATIO,
                Q(share(total(HITS), total(QUERIES)), ""),
                span=3,
                when_absent="idle",
            ),
            numbers(
                108,
                "Refused",
                "In the time range on screen: requests answered with 503 because of a limit of the "
                "queue. Not 0: add replicas. 'unknown': a vLLM before 0.32.",
                COUNT,
                Q(total(over_range(REFUSALS, MODEL_OF_SERVER)), ""),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                span=3,
                decimals=0,
                when_absent="unknown",
            ),
        ],
    )
