"""The panel of where the time to the first token goes."""

from dashboards.kit.panels import SECONDS, Panel, Q, graph
from dashboards.kit.queries import rate, series, total

_SHOWN = 7
"""Parts whose legend is whole beside the panel: the largest of the time range."""
_COLOURS = {
    "wait_sequences": "orange",
    "wait_blocks": "red",
    "wait_tokens": "yellow",
    "wait_transfer": "purple",
    "wait_unexplained": "dark-red",
    "wait_step": "light-orange",
    "preempted": "dark-purple",
    "prefill_own": "blue",
    "prefill_again": "light-purple",
    "prefill_others": "light-blue",
    "slow": "dark-orange",
    "host": "green",
    "unknown": "text",
}


def first_token_time(id: int, span: int = 24, height: int = 8) -> Panel:
    """Mean seconds of a first token, stacked."""
    family = "kvscope_request_seconds_total"
    spent = total(rate(family, phase="first_token"), "part")
    grown = f"increase({series(family, phase='first_token')}[$__range] @ end())"
    most = f"topk({_SHOWN}, {total(grown, 'part')} > 0)"
    count = total(rate("kvscope_time_to_first_token_seconds_count"))
    return graph(
        id,
        "Where first tokens' time goes",
        "Mean seconds until a first token, by what they were spent on. wait_sequences: raise "
        "--max-num-seqs if the pool has room. wait_blocks: a larger pool, or replicas. wait_tokens "
        "and prefill_others: the token budget of a step. wait_unexplained: the scheduler is stuck. "
        "slow is an estimate. Requests without a first token count when they end.",
        SECONDS,
        Q(
            f"({spent} and on (part) {most}) / on () group_left () ({count} > 0)",
            "{{part}}",
        ),
        colours=_COLOURS,
        stacked=True,
        span=span,
        height=height,
        calcs=("lastNotNull",),
    )
