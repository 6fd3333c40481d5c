"""vLLM: what do users feel?"""

from dashboards.boards.vllm.series import (
    NEXT_TOKEN,
    first_tokens_in_time,
    gap,
    gaps_by_bucket,
    gaps_in_time,
)
from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import OBJECTIVE, RATIO, Q, graph, heat, quantiles
from dashboards.kit.queries import buckets, mean, quantile

_BY, _NAME = "model_name", "{{model_name}}"


def row() -> Row:
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
            quantiles(
                404,
                "Whole request",
                "From arrival to the end. It depends on how many tokens were requested: judge it "
                "beside the first token. Its buckets begin at 0.3 s: for shorter requests only "
                "the mean is right.",
                *(
                    Q(quantile(q, "vllm:e2e_request_latency_seconds"), f"p{q * 100:g}")
                    for q in (0.5, 0.95)
                ),
                Q(mean("vllm:e2e_request_latency_seconds"), "mean"),
                height=9,
            ),
            heat(
                405,
                "Between two tokens, every gap",
                "What lies behind the quantiles. A band far above the rest: preemptions, or steps "
                "with large prefills. Everything moved up a cell: the whole engine got slower.",
                gaps_by_bucket(),
                span=8,
                height=9,
            ),
            graph(
                406,
                "First tokens in time",
                "Share of the requests whose first token came within 'First token within' above, "
                "by model. What is below your objective is paid from its error budget.",
                RATIO,
                *outstanding(first_tokens_in_time(_BY), _NAME, by=_BY, lowest=True),
                low=None,
                high=1,
                calcs=("lastNotNull", "min"),
                span=8,
                height=9,
            ),
            graph(
                407,
                "Next tokens in time",
                "Share of the tokens that came within 'Next token within' above after the one "
                "before, by model. It falls while first tokens are in time: decode suffers; look "
                "at preemptions and prefills.",
                RATIO,
                *outstanding(gaps_in_time(_BY), _NAME, by=_BY, lowest=True),
                low=None,
                high=1,
                calcs=("lastNotNull", "min"),
                span=8,
                height=9,
            ),
        ],
    )
