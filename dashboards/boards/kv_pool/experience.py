"""KV pool: what do users feel?"""

from dashboards.kit.fleet import quantile_lines
from dashboards.kit.frame import Row
from dashboards.kit.levels import FIRST_TOKEN_OBJECTIVE, TOKEN_GAP_OBJECTIVE
from dashboards.kit.panels import Q, heat, quantiles
from dashboards.kit.queries import buckets, mean
from dashboards.kit.time_parts import first_token_time


def row() -> Row:
    return Row(
        500,
        "What do users feel?",
        [
            heat(
                501,
                "Time to first token",
                "From arrival to the first token; the more a cell stands out, the more requests. "
                "A second band above the first: some requests wait for the pool; compare with the "
                "queue.",
                buckets("kvscope_time_to_first_token_seconds"),
                height=9,
            ),
            quantiles(
                502,
                "Between two tokens",
                "Each preemption is one long gap. p99 up with p50 flat: preemptions. Both up: "
                "large prefills in the same steps; lower --max-num-batched-tokens.",
                *quantile_lines("kvscope_inter_token_latency_seconds", 0.5, 0.95, 0.99),
                TOKEN_GAP_OBJECTIVE,
                height=9,
            ),
            heat(
                505,
                "Between two tokens, every gap",
                "What lies behind the quantiles. A band far above the rest: preemptions, or steps "
                "with large prefills. Everything moved up a cell: the whole engine got slower; "
                "look at the clocks of its GPU.",
                buckets("kvscope_inter_token_latency_seconds"),
                height=9,
                span=8,
            ),
            quantiles(
                503,
                "In the queue",
                "From arrival until a request first runs; part of its time to first token. Long "
                "with a full pool: more memory or replicas. Long with a pool that is not full: "
                "raise --max-num-seqs.",
                *quantile_lines("kvscope_request_queue_seconds", 0.5, 0.95),
                FIRST_TOKEN_OBJECTIVE,
                height=9,
                span=8,
            ),
            first_token_time(506, span=8),
            quantiles(
                504,
                "Whole request",
                "From arrival to the end, whatever the reason. It depends on how many tokens were "
                "requested: judge it beside the first token and the gaps.",
                *quantile_lines("kvscope_request_duration_seconds", 0.5, 0.95),
                Q(mean("kvscope_request_duration_seconds"), "mean"),
                height=9,
                span=8,
            ),
        ],
    )
