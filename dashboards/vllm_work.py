"""vLLM, second half: what users feel, and what the engines do."""

from dashboards import thresholds as limits
from dashboards.frame import Row
from dashboards.panels import (
    COUNT,
    REQUESTS_PER_SECOND,
    TOKENS,
    TOKENS_PER_SECOND,
    Panel,
    Q,
    graph,
    heat,
    quantiles,
)
from dashboards.queries import buckets, mean, quantile, rate, series, total
from dashboards.vllm_series import MODEL_OF_SERVER, REFUSALS, gap


def experience() -> Row:
    return Row(
        400,
        "What do users feel?",
        [
            heat(
                401,
                "Time to first token",
                "The more a cell stands out, the more requests. A second band above the first: "
                "some wait for the cache.",
                buckets("vllm:time_to_first_token_seconds"),
                height=9,
            ),
            quantiles(
                402,
                "Between two tokens",
                "p99 up with p50 flat: preemptions. Both up: large prefills; lower "
                "--max-num-batched-tokens.",
                *(Q(gap(q), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
                steps=limits.TOKEN_GAP_SECONDS,
                height=9,
            ),
            quantiles(
                403,
                "Where a request's time goes",
                "On average: in the queue, for its prompt (prefill), for its tokens (decode); the "
                "rest up to the line is the front end's. What grew is where to look. Means, for "
                "these buckets begin at 0.3 s: quantiles below that are wrong.",
                *(
                    Q(mean(f"vllm:request_{phase}_time_seconds"), phase)
                    for phase in ("queue", "prefill", "decode")
                ),
                Q(mean("vllm:e2e_request_latency_seconds"), "whole request"),
                stacked=True,
                lines=("whole request",),
                colours=limits.PHASE_COLOURS,
                calcs=("lastNotNull", "mean"),
                right=True,
                height=9,
            ),
            quantiles(
                404,
                "Whole request",
                "From arrival to the end. It depends on how much was asked for: judge it beside "
                "the first token. Its buckets begin at 0.3 s: of shorter requests only the mean is "
                "right.",
                *(
                    Q(quantile(q, "vllm:e2e_request_latency_seconds"), f"p{q * 100:g}")
                    for q in (0.5, 0.95)
                ),
                Q(mean("vllm:e2e_request_latency_seconds"), "mean"),
                height=9,
            ),
        ],
    )


def work() -> Row:
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
                "How requests ended. abort: clients gave up. error: see the log. refused: the "
                "queue was full; told since vLLM 0.32.",
                REQUESTS_PER_SECOND,
                Q(
                    total(rate("vllm:request_success_total"), "finished_reason"),
                    "{{finished_reason}}",
                ),
                Q(total(rate(REFUSALS, MODEL_OF_SERVER)), "refused"),
                stacked=True,
                colours={**limits.END_COLOURS, "repetition": "purple"},
                listed=True,
                span=8,
            ),
            _lengths(
                504,
                "Prompt lengths",
                "Tokens of the prompts that ended, by model: the buckets end at each model's "
                "longest sequence. It rises: callers send more, and fewer fit the pool at once.",
                "vllm:request_prompt_tokens",
            ),
            _lengths(
                505,
                "Reply lengths",
                "Tokens generated for the requests that ended, by model. Long replies hold their "
                "blocks longest. p50 close to p95: callers run into their limit.",
                "vllm:request_generation_tokens",
            ),
        ],
    )


def _lengths(id: int, title: str, description: str, name: str) -> Panel:
    return graph(
        id,
        title,
        description,
        TOKENS,
        *(
            Q(quantile(q, name, "model_name"), f"p{q * 100:g}, {{{{model_name}}}}")
            for q in (0.5, 0.95)
        ),
        axis="tokens",
        right=True,
    )
