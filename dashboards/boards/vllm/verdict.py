"""vLLM, first row: is anything wrong?"""

from dashboards.boards.vllm.series import (
    ERROR_BUDGET,
    KNOWN_SERVERS,
    LATE_BUDGET,
    PEAK_USAGE,
    STALLED,
    STEPS,
    error_share,
    first_tokens_in_time,
    gap,
    gaps_in_time,
    http_error_share,
)
from dashboards.kit import pressure
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.levels import judged_by_burn
from dashboards.kit.panels import COUNT, RATIO, SECONDS, Q, numbers
from dashboards.kit.queries import (
    BY_ENGINE,
    TARGET,
    or_zero,
    over_range,
    quantile,
    rate,
    recent,
    series,
    total,
    worst,
)

_ERRORS = recent(worst(f"{error_share(BY_ENGINE)} or {http_error_share()}"))


def _burn(in_time: str) -> str:
    """Multiple of the rate that the promise allows, for the worst server."""
    return f"({worst(f'1 - {recent(in_time)}')}) / {LATE_BUDGET:g}"


def row() -> Row:
    return Row(
        100,
        "Is anything wrong?",
        [
            numbers(
                101,
                "Down",
                "Servers seen in this time range that do not answer Prometheus now. Not 0: is the "
                "process alive?",
                COUNT,
                Q(
                    or_zero(f"sum((1 - up) * on ({TARGET}) {KNOWN_SERVERS})", KNOWN_SERVERS),
                    "",
                ),
                when_absent="no engine",
                steps=limits.NONE_IS_GOOD,
                span=3,
                height=4,
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
                height=4,
                when_absent="unknown",
            ),
            numbers(
                109,
                "Errors",
                "Share of requests that fail, over five minutes, where it is highest: ended with "
                "an error by an engine, or answered with 5xx by a server. Orange: more than the "
                "error budget allows; red: at the rate that pages. Read its log; take it out.",
                RATIO,
                *judged_by_burn(_ERRORS, f"{_ERRORS} / {ERROR_BUDGET:g}", ""),
                steps=limits.UNJUDGED,
                span=3,
                height=4,
                when_absent="idle",
            ),
            numbers(
                104,
                "First token",
                "In the slowest server, 95 of 100 requests have their first token within this "
                "time, over five minutes. Orange: more are late than the promise above allows; "
                "red: at the rate that pages. See below which server it is, and whether it "
                "queues.",
                SECONDS,
                *judged_by_burn(
                    worst(recent(quantile(0.95, "vllm:time_to_first_token_seconds", TARGET))),
                    _burn(first_tokens_in_time(TARGET)),
                    "",
                ),
                steps=limits.UNJUDGED,
                span=3,
                height=4,
                when_absent="idle",
            ),
            numbers(
                111,
                "Token gap",
                "In the slowest server, 95 of 100 tokens come within this time of their "
                "predecessor, over five minutes. Orange: more are late than the promise above "
                "allows; red: at the rate that pages. Preemptions, large prefills, or a slow "
                "device.",
                SECONDS,
                *judged_by_burn(worst(recent(gap(0.95, TARGET))), _burn(gaps_in_time(TARGET)), ""),
                steps=limits.UNJUDGED,
                span=3,
                height=4,
                when_absent="idle",
            ),
            numbers(
                103,
                "Waiting",
                "Requests that wait. Above 0 for long with a full cache: too much load. With a "
                "cache that is not full: raise --max-num-seqs.",
                COUNT,
                Q(total(series("vllm:num_requests_waiting")), ""),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                span=3,
                height=4,
            ),
            numbers(
                102,
                "Fullest pool",
                "Share of the blocks that requests reference, in the engine where it is highest. "
                "A full cache alone is not a fault. Orange: it is full, and requests wait for it "
                "or are preempted; add replicas, raise --gpu-memory-utilization, or lower "
                "--max-num-seqs.",
                RATIO,
                *pressure.fullest(
                    PEAK_USAGE,
                    total(series("vllm:num_requests_waiting"), BY_ENGINE),
                    total(rate("vllm:num_preemptions_total"), BY_ENGINE),
                ),
                steps=limits.NEVER_A_FAULT,
                judged=pressure.JUDGED,
                span=3,
                height=4,
            ),
            numbers(
                105,
                "Preemptions",
                "In the time range on screen. vLLM counts them when a victim resumes, without the "
                "tokens it lost. Many: lower --max-num-seqs.",
                COUNT,
                Q(total(over_range("vllm:num_preemptions_total")), ""),
                when_absent="no engine",
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                span=3,
                height=4,
                decimals=0,
            ),
        ],
    )
