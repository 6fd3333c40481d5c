"""vLLM: what do users feel?"""

from dashboards.boards.vllm.series import (
    NEXT_TOKEN,
    gap,
)
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import OBJECTIVE, Q, quantiles
from dashboards.kit.queries import mean

_BY, _NAME = "model_name", "{{model_name}}"


def row() -> Row:
    return Row(
        400,
        "What do users feel?",
        [
            quantiles(
                402,
                "Between two tokens",
                "p99 up with p50 flat: preemptions. Both up: large prefills; lower "
                "--max-num-batched-tokens.",
                *(Q(gap(q), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
                Q(f"vector(${NEXT_TOKEN})", OBJECTIVE),
                height=9,
            ),
            quantiles(
                403,
                "Where a request's time goes",
                "On average: in the queue, for its prompt (prefill), for its tokens (decode); the "
                "rest up to the line is the front end's. Look at the part that grew. Means, "
                "because these buckets begin at 0.3 s and quantiles below that would be wrong.",
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
        ],
    )
