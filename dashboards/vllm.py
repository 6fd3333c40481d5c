"""vLLM: what can be said of a bare vLLM, by its own metric names, scraped without kvscope.

The same JSON reads kvscope's own engine, which serves those names too. Where vLLM renamed a metric,
both names are asked (0.8 to now).
"""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards import thresholds as limits
from dashboards.frame import Row, assemble, engine_variables
from dashboards.links import VLLM
from dashboards.panels import COUNT, PER_SECOND, RATIO, SECONDS, Q, graph, numbers
from dashboards.queries import (
    BY_ENGINE,
    ENGINE_LEGEND,
    or_zero,
    over_range,
    quantile,
    rate,
    series,
    share,
    total,
    worst,
)
from dashboards.tables import Column, note, rows
from dashboards.vllm_series import (
    HANGING,
    HITS,
    KNOWN_SERVERS,
    MODEL_OF_SERVER,
    QUERIES,
    REFUSALS,
    STEPS,
    UP_SECONDS,
    USAGE,
)
from dashboards.vllm_work import experience, work


def build() -> db.Dashboard:
    """For users who have not installed anything of kvscope but this JSON."""
    return assemble(
        "vLLM",
        VLLM,
        "A bare vLLM by its own metrics. What it cannot say, kvscope's other dashboards do.",
        _variables(),
        [_verdict(), _where(), _pool(), experience(), work(), _limits()],
    )


def _variables() -> list[db.QueryVariable]:
    """All engines are also those without the label, which vLLM did not always have."""
    model, server, engine = engine_variables("vllm:num_requests_running")
    return [model, server, engine.all_value(".*")]


def _verdict() -> Row:
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
                "Hanging",
                "Engines with requests running or waiting for two minutes and no token in that "
                "time. Not 0: /health may still say 200; read the log, then restart that server.",
                COUNT,
                Q(f"count({HANGING}) or 0 * count({STEPS})", ""),
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
                "Requests that wait. Stays above 0 with a full cache: too much load. With a cache "
                "that is not full: raise --max-num-seqs.",
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
                "queue. Not 0: add replicas. 'not told': a vLLM before 0.32.",
                COUNT,
                Q(total(over_range(REFUSALS, MODEL_OF_SERVER)), ""),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
                span=3,
                decimals=0,
                when_absent="not told",
            ),
        ],
    )


_HANGING = {0: ("no", "transparent"), 1: ("yes", limits.RED)}


def _where() -> Row:
    by = f"job, {BY_ENGINE}"
    return Row(
        200,
        "What is wrong, and where?",
        [
            rows(
                201,
                "Engines",
                "One line an engine; a coloured cell is where to begin. Choose it above to see it "
                "alone. Up for: shorter than its neighbours' is a restart.",
                Q(worst(USAGE, by), "pool"),
                Q(worst(series("vllm:num_requests_running"), by), "running"),
                Q(worst(series("vllm:num_requests_waiting"), by), "waiting"),
                Q(quantile(0.95, "vllm:time_to_first_token_seconds", by), "ttft"),
                Q(share(total(HITS, by), total(QUERIES, by)), "hits"),
                Q(total(rate("vllm:num_preemptions_total"), by), "preemptions"),
                Q(f"{worst(f'({HANGING}) + 1', by)} or 0 * {worst(STEPS, by)}", "hanging"),
                Q(UP_SECONDS, "up"),
                columns={
                    "model_name": Column("Model"),
                    "instance": Column("Server"),
                    "engine": Column("Engine", width=70),
                    "hanging": Column("Hanging", meanings=_HANGING, width=90),
                    "pool": Column("KV cache", RATIO, limits.POOL_USAGE),
                    "running": Column("Running", COUNT),
                    "waiting": Column("Waiting", COUNT, limits.SOME_ARE_WORTH_A_LOOK),
                    "ttft": Column("First token p95", SECONDS, limits.FIRST_TOKEN_SECONDS),
                    "hits": Column("Hit ratio", RATIO),
                    "preemptions": Column("Preemptions", PER_SECOND),
                    "up": Column("Up for", SECONDS),
                },
                worst_first="Hanging",
                height=7,
            ),
            rows(
                202,
                "Cache settings",
                "As vLLM tells them. Fewer blocks than expected: its log says which memory it "
                "counted.",
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


def _pool() -> Row:
    return Row(
        300,
        "Since when: cache and pressure",
        [
            graph(
                301,
                "KV cache in use",
                "Referenced blocks. Long at the top: preemptions follow. What is cached beside "
                "them vLLM does not tell.",
                RATIO,
                Q(worst(USAGE, BY_ENGINE), ENGINE_LEGEND),
                high=1,
                steps=limits.POOL_USAGE,
                span=8,
            ),
            graph(
                302,
                "Preemptions",
                "Requests that lost their blocks. Compare with first tokens and gaps: vLLM does "
                "not count what it cost.",
                PER_SECOND,
                Q(total(rate("vllm:num_preemptions_total"), BY_ENGINE), ENGINE_LEGEND),
                span=8,
            ),
            graph(
                303,
                "Prefix hit ratio",
                "Found over asked. A fall: prompts changed, or the cache became too small; which "
                "of both vLLM does not tell.",
                RATIO,
                Q(share(total(HITS, BY_ENGINE), total(QUERIES, BY_ENGINE)), ENGINE_LEGEND),
                high=1,
                span=8,
            ),
        ],
    )


_LIMITS = """
Not in vLLM's metrics, and therefore not here: blocks that are cached or free · why a block was \
missed · tokens computed twice and seconds lost by preemptions · when the pool will be full · \
fragmentation · when the last step was, so that a hang shows only after two minutes · where the \
card's memory went · how close a step is to running out of it. kvscope's exporter adds them: \
import the other dashboards with it.
"""


def _limits() -> Row:
    return Row(
        600, "What is missing here?", [note(601, "What vLLM does not say", _LIMITS, height=4)]
    )
