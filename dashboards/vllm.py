"""vLLM: what can be said of a bare vLLM, by its own metric names, scraped without kvscope.

The same JSON reads kvscope's own engine, which serves those names too. Where vLLM renamed a metric,
both names are asked (0.8 to now).
"""

from grafana_foundation_sdk.builders import dashboard as db

from dashboards import thresholds as limits
from dashboards.frame import Row, assemble, engine_variables
from dashboards.links import VLLM
from dashboards.panels import (
    COUNT,
    PER_SECOND,
    RATIO,
    REQUESTS_PER_SECOND,
    SECONDS,
    TOKENS_PER_SECOND,
    Q,
    graph,
    heat,
    numbers,
    quantiles,
)
from dashboards.queries import (
    BY_ENGINE,
    ENGINE_LEGEND,
    WHOLE_RANGE,
    buckets,
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

_USAGE = f"({series('vllm:kv_cache_usage_perc')} or {series('vllm:gpu_cache_usage_perc')})"
_HITS = f"({rate('vllm:prefix_cache_hits_total')} or {rate('vllm:gpu_prefix_cache_hits_total')})"
_QUERIES = (
    f"({rate('vllm:prefix_cache_queries_total')} or {rate('vllm:gpu_prefix_cache_queries_total')})"
)
_GAP = "vllm:inter_token_latency_seconds"
_OLD_GAP = "vllm:time_per_output_token_seconds"
_KNOWN_SERVERS = (
    f"group by (job, instance) (last_over_time({series('vllm:num_requests_running')}"
    f"[{WHOLE_RANGE}]))"
)


def build() -> db.Dashboard:
    """For users who have not installed anything of kvscope but this JSON."""
    return assemble(
        "vLLM",
        VLLM,
        "A bare vLLM by its own metrics. What it cannot say, kvscope's other dashboards do.",
        engine_variables("vllm:num_requests_running"),
        [_verdict(), _where(), _pool(), _experience(), _work(), _limits()],
    )


def _gap(q: float) -> str:
    return f"{quantile(q, _GAP)} or {quantile(q, _OLD_GAP)}"


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
                Q(or_zero(f"sum((1 - up) * on (job, instance) {_KNOWN_SERVERS})"), ""),
                steps=limits.NONE_IS_GOOD,
            ),
            numbers(
                102,
                "Fullest KV cache",
                "Share of the blocks that requests reference, in the engine where it is highest. "
                "Red: the next burst preempts. Add replicas, raise --gpu-memory-utilization, or "
                "lower --max-num-seqs.",
                RATIO,
                Q(worst(_USAGE), ""),
                steps=limits.POOL_USAGE,
            ),
            numbers(
                103,
                "Waiting",
                "Requests that wait. Stays above 0 with a full cache: too much load. With a cache "
                "that is not full: raise --max-num-seqs.",
                COUNT,
                Q(total(series("vllm:num_requests_waiting")), ""),
                steps=limits.SOME_ARE_WORTH_A_LOOK,
            ),
            numbers(
                104,
                "First token p95",
                "95 of 100 requests have their first token within this time. Red: compare with the "
                "queue below.",
                SECONDS,
                Q(quantile(0.95, "vllm:time_to_first_token_seconds"), ""),
                steps=limits.FIRST_TOKEN_SECONDS,
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
                decimals=0,
            ),
            numbers(
                106,
                "Prefix hit ratio",
                "Share of prompt tokens found in the cache. Good depends on the workload; a fall "
                "against its own past is what to look for.",
                RATIO,
                Q(share(total(_HITS), total(_QUERIES)), ""),
                when_absent="idle",
            ),
        ],
    )


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
                "alone.",
                Q(worst(_USAGE, by), "pool"),
                Q(worst(series("vllm:num_requests_running"), by), "running"),
                Q(worst(series("vllm:num_requests_waiting"), by), "waiting"),
                Q(quantile(0.95, "vllm:time_to_first_token_seconds", by), "ttft"),
                Q(share(total(_HITS, by), total(_QUERIES, by)), "hits"),
                Q(total(rate("vllm:num_preemptions_total"), by), "preemptions"),
                columns={
                    "model_name": Column("Model"),
                    "instance": Column("Server"),
                    "engine": Column("Engine", width=70),
                    "pool": Column("KV cache", RATIO, limits.POOL_USAGE),
                    "running": Column("Running", COUNT),
                    "waiting": Column("Waiting", COUNT, limits.SOME_ARE_WORTH_A_LOOK),
                    "ttft": Column("First token p95", SECONDS, limits.FIRST_TOKEN_SECONDS),
                    "hits": Column("Hit ratio", RATIO),
                    "preemptions": Column("Preemptions", PER_SECOND),
                },
                height=6,
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
                Q(worst(_USAGE, BY_ENGINE), ENGINE_LEGEND),
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
                Q(share(total(_HITS, BY_ENGINE), total(_QUERIES, BY_ENGINE)), ENGINE_LEGEND),
                high=1,
                span=8,
            ),
        ],
    )


def _experience() -> Row:
    return Row(
        400,
        "What do users feel?",
        [
            heat(
                401,
                "Time to first token",
                "Dark is many. A second band above the first: some wait for the cache.",
                buckets("vllm:time_to_first_token_seconds"),
            ),
            quantiles(
                402,
                "Between two tokens",
                "p99 up with p50 flat: preemptions. Both up: large prefills; lower "
                "--max-num-batched-tokens.",
                *(Q(_gap(q), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
                steps=limits.TOKEN_GAP_SECONDS,
            ),
            quantiles(
                403,
                "Where a request's time goes, p95",
                "queue: waiting to run. prefill: its prompt. decode: its tokens. The one that grew "
                "is where to look. vLLM adds them when a request ends.",
                *(
                    Q(quantile(0.95, f"vllm:request_{phase}_time_seconds"), phase)
                    for phase in ("queue", "prefill", "decode")
                ),
            ),
            quantiles(
                404,
                "Whole request",
                "From arrival to the end. It depends on how much was asked for: judge it beside "
                "the first token.",
                *(
                    Q(quantile(q, "vllm:e2e_request_latency_seconds"), f"p{q * 100:g}")
                    for q in (0.5, 0.95)
                ),
            ),
        ],
    )


def _work() -> Row:
    return Row(
        500,
        "What do the engines do?",
        [
            graph(
                501,
                "Requests",
                "Running and waiting. Waiting that does not go down: more arrives than can be "
                "served.",
                COUNT,
                Q(total(series("vllm:num_requests_running")), "running"),
                Q(total(series("vllm:num_requests_waiting")), "waiting"),
                stacked=True,
                colours={"running": "blue", "waiting": "orange"},
                axis="requests",
                span=8,
            ),
            graph(
                502,
                "Tokens",
                "Prompt tokens (added at the first token, hits included) and generated ones. "
                "Generated falls, prompts do not: prefill crowds out decode.",
                TOKENS_PER_SECOND,
                Q(total(rate("vllm:prompt_tokens_total")), "prompt"),
                Q(total(rate("vllm:generation_tokens_total")), "generated"),
                colours={"prompt": "light-blue", "generated": "blue"},
                span=8,
            ),
            graph(
                503,
                "Ends",
                "How requests ended. abort: clients gave up. error: see the log.",
                REQUESTS_PER_SECOND,
                Q(
                    total(rate("vllm:request_success_total"), "finished_reason"),
                    "{{finished_reason}}",
                ),
                stacked=True,
                colours=limits.END_COLOURS,
                span=8,
            ),
            heat(
                504,
                "Prompt lengths",
                "Tokens of the prompts that ended. A band that moves up: callers send more, and "
                "fewer fit the pool at once.",
                buckets("vllm:request_prompt_tokens"),
                unit=COUNT,
            ),
            heat(
                505,
                "Reply lengths",
                "Tokens generated for the requests that ended. Long replies hold their blocks "
                "longest. A band at one value: callers run into their limit.",
                buckets("vllm:request_generation_tokens"),
                unit=COUNT,
            ),
        ],
    )


_LIMITS = """
Not in vLLM's metrics, and therefore not here: blocks that are cached or free · why a block was \
missed · tokens computed twice and seconds lost by preemptions · when the pool will be full · \
fragmentation · where the card's memory went · how close a step is to running out of it. kvscope's \
exporter adds them: import the other dashboards with it.
"""


def _limits() -> Row:
    return Row(
        600, "What is missing here?", [note(601, "What vLLM does not say", _LIMITS, height=4)]
    )
