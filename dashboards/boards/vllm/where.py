"""vLLM: which engine is it, and how is its cache set up?"""

from dashboards.boards.vllm.series import (
    HITS,
    QUERIES,
    STALLED,
    STEPS,
    UP_SECONDS,
    USAGE,
    error_share,
    gap,
)
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, PER_SECOND, RATIO, SECONDS, Q
from dashboards.kit.queries import BY_ENGINE, quantile, rate, series, total, worst
from dashboards.kit.tables import Column, rows
from monitoring.formulas import share

_MEANINGS = {0: ("no", "transparent"), 1: ("yes", limits.RED)}


def row() -> Row:
    by = f"job, {BY_ENGINE}"
    return Row(
        200,
        "What is wrong, and where?",
        [
            rows(
                201,
                "Engines",
                "One line for each engine; begin where a cell is coloured. Choose an engine above "
                "to see it alone. Up for less time than its neighbours: it restarted.",
                Q(worst(USAGE, by), "pool"),
                Q(worst(series("vllm:num_requests_running"), by), "running"),
                Q(worst(series("vllm:num_requests_waiting"), by), "waiting"),
                Q(quantile(0.95, "vllm:time_to_first_token_seconds", by), "ttft"),
                Q(gap(0.95, by), "gap"),
                Q(error_share(by), "errors"),
                Q(share(total(HITS, by), total(QUERIES, by)), "hits"),
                Q(total(rate("vllm:num_preemptions_total"), by), "preemptions"),
                Q(f"{worst(f'({STALLED}) + 1', by)} or 0 * {worst(STEPS, by)}", "stalled"),
                Q(UP_SECONDS, "up"),
                columns={
                    "model_name": Column("Model"),
                    "instance": Column("Server"),
                    "engine": Column("Engine", width=70),
                    "stalled": Column("Stalled", meanings=_MEANINGS, width=90),
                    "pool": Column("KV cache", RATIO),
                    "running": Column("Running", COUNT),
                    "waiting": Column("Waiting", COUNT, limits.SOME_ARE_WORTH_A_LOOK),
                    "ttft": Column("First token p95", SECONDS, limits.FIRST_TOKEN_SECONDS),
                    "gap": Column("Token gap p95", SECONDS, limits.TOKEN_GAP_SECONDS),
                    "errors": Column("Errors", RATIO, limits.ERROR_SHARE),
                    "hits": Column("Hit ratio", RATIO),
                    "preemptions": Column("Preemptions", PER_SECOND),
                    "up": Column("Up for", SECONDS),
                },
                worst_first="Stalled",
                height=7,
            ),
            rows(
                202,
                "Cache settings",
                "Settings as vLLM publishes them. Fewer blocks than expected: its log says which "
                "memory it counted.",
                Q(series("vllm:cache_config_info", 'instance=~"$instance"'), "present"),
                columns={
                    "instance": Column("Server"),
                    "num_gpu_blocks": Column("Blocks"),
                    "block_size": Column("Tokens a block"),
                    "enable_prefix_caching": Column("Prefix caching"),
                    "cache_dtype": Column("KV type"),
                },
                height=5,
            ),
        ],
    )
