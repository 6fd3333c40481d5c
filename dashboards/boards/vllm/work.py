"""vLLM: what do the engines do?"""

from dashboards.boards.vllm.series import MODEL_OF_SERVER, REFUSALS
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import (
    COUNT,
    REQUESTS_PER_SECOND,
    TOKENS_PER_SECOND,
    Q,
    graph,
)
from dashboards.kit.queries import rate, series, total


def row() -> Row:
    return Row(
        500,
        "What do the engines do?",
        [
            graph(
                501,
                "Requests",
                "Running and waiting. Waiting that does not drain: more arrives than can be "
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
                "queue was full; counted since vLLM 0.32.",
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
        ],
    )
