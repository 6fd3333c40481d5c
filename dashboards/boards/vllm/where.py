"""vLLM: which engine is it, and how is its cache set up?"""

from dashboards.boards.vllm.series import (
    HITS,
    LATE_BUDGET,
    QUERIES,
    STALLED,
    STEPS,
    UP_SECONDS,
    USAGE,
    error_share,
    first_tokens_in_time,
    gap,
)
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, PER_SECOND, RATIO, SECONDS, TIMES, Q
from dashboards.kit.queries import BY_ENGINE, PLACE, quantile, rate, recent, series, total, worst
from dashboards.kit.tables import Column, rows
from kvscope_monitoring.formulas import share

_SETTINGS = "num_gpu_blocks, block_size, enable_prefix_caching, cache_dtype"
_CONFIGURATION = series("vllm:cache_config_info", f'{PLACE},instance=~"$instance"')
_MEANINGS = {0: ("no", "transparent"), 1: ("yes", limits.RED)}

_STALLED = f"{worst(f'({STALLED}) + 1', BY_ENGINE)} or 0 * {worst(STEPS, BY_ENGINE)}"


def row() -> Row:
    return Row(
        200,
        "What is wrong, and where?",
        [
            rows(
                201,
                "Engines",
                "One line for each engine, those that stall first, then the longest queue; begin "
                "where a cell is coloured. First token, token gap: 95 of 100 come within it. "
                "Late: first tokens that break the promise above, as a multiple of those that "
                "may. Choose an engine above to see it alone. Up for less time than its "
                "neighbours: it restarted.",
                Q(worst(USAGE, BY_ENGINE), "pool"),
                Q(worst(series("vllm:num_requests_running"), BY_ENGINE), "running"),
                Q(worst(series("vllm:num_requests_waiting"), BY_ENGINE), "waiting"),
                Q(quantile(0.95, "vllm:time_to_first_token_seconds", BY_ENGINE), "ttft"),
                Q(gap(0.95, BY_ENGINE), "gap"),
                Q(f"(1 - {recent(first_tokens_in_time(BY_ENGINE))}) / {LATE_BUDGET:g}", "late"),
                Q(recent(error_share(BY_ENGINE)), "errors"),
                Q(share(total(HITS, BY_ENGINE), total(QUERIES, BY_ENGINE)), "hits"),
                Q(total(rate("vllm:num_preemptions_total"), BY_ENGINE), "preemptions"),
                Q(_STALLED, "stalled"),
                Q(UP_SECONDS, "up"),
                columns={
                    "model_name": Column("Model", least=100),
                    "instance": Column("Server", least=100),
                    "engine": Column("Engine", width=60),
                    "stalled": Column("Stalled", meanings=_MEANINGS, width=75),
                    "pool": Column("KV cache", RATIO, width=80),
                    "running": Column("Running", COUNT, width=75),
                    "waiting": Column("Waiting", COUNT, limits.SOME_ARE_WORTH_A_LOOK, width=85),
                    "ttft": Column("First token", SECONDS, width=90),
                    "gap": Column("Token gap", SECONDS, width=90),
                    "late": Column("Late", TIMES, limits.BURN_RATE, width=70, decimals=1),
                    "errors": Column("Errors", RATIO, width=70),
                    "hits": Column("Hit ratio", RATIO, width=75),
                    "preemptions": Column("Preemptions", PER_SECOND, width=100),
                    "up": Column("Up for", SECONDS, width=80),
                },
                worst_first=("Stalled", "Waiting"),
                height=7,
            ),
            rows(
                202,
                "Cache settings",
                "Settings as vLLM publishes them, and how many engines have them. A line of a few "
                "engines: those are configured differently from the rest. Fewer blocks than "
                "expected: the log shows which memory was counted.",
                Q(f"count by ({_SETTINGS}) ({_CONFIGURATION})", "engines"),
                columns={
                    "engines": Column("Engines", COUNT, width=90),
                    "num_gpu_blocks": Column("Blocks"),
                    "block_size": Column("Tokens a block"),
                    "enable_prefix_caching": Column("Prefix caching"),
                    "cache_dtype": Column("KV type"),
                },
                worst_first=("Engines",),
                height=4,
            ),
        ],
    )
