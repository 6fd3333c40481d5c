"""KV pool, second half: what pressure costs, what users feel of it, what the engine does."""

from dashboards import thresholds as limits
from dashboards.frame import Row
from dashboards.panels import (
    COUNT,
    PER_SECOND,
    RATIO,
    REQUESTS_PER_SECOND,
    TOKENS_PER_SECOND,
    Q,
    graph,
    heat,
    quantiles,
)
from dashboards.queries import (
    BY_ENGINE,
    ENGINE_LEGEND,
    buckets,
    mean,
    quantile,
    rate,
    series,
    share,
    total,
)


def cost() -> Row:
    recomputed = rate("kvscope_preemption_recomputed_tokens_total")
    return Row(
        300,
        "What did pressure cost?",
        [
            graph(
                301,
                "Preemptions",
                "Running requests that lost their blocks. out_of_blocks: the pool was full. "
                "out_of_memory: the device was; open Memory and OOM risk.",
                PER_SECOND,
                Q(total(rate("kvscope_preemptions_total"), "cause"), "{{cause}}"),
                colours={"out_of_blocks": "orange", "out_of_memory": "red"},
                span=6,
            ),
            graph(
                302,
                "Tokens thrown away, tokens paid for",
                "discarded: had been computed when the request was preempted. computed twice: what "
                "the cache no longer had when it resumed. The gap is what the cache rescued.",
                TOKENS_PER_SECOND,
                Q(total(rate("kvscope_preemption_discarded_tokens_total")), "discarded"),
                Q(total(recomputed), "computed twice"),
                colours={"discarded": "light-blue", "computed twice": "orange"},
                span=6,
            ),
            graph(
                303,
                "Share of the work done twice",
                "Of all tokens computed. Orange is noticeable, red a storm: running requests "
                "preempt each other. Lower --max-num-seqs until it is gone.",
                RATIO,
                Q(
                    share(
                        total(recomputed, BY_ENGINE),
                        total(rate("kvscope_step_tokens_total"), BY_ENGINE),
                    ),
                    ENGINE_LEGEND,
                ),
                steps=limits.RECOMPUTED_SHARE,
                span=6,
            ),
            graph(
                304,
                "Requests standing still",
                "Preempted requests that wait, on average: seconds of waiting per second, added "
                "when they resume. Each is a reply that stopped midway.",
                COUNT,
                Q(total(rate("kvscope_preemption_stalled_seconds_total")), "preempted"),
                colours={"preempted": "orange"},
                steps=limits.STALLED_REQUESTS,
                axis="requests",
                span=6,
            ),
        ],
    )


def experience() -> Row:
    return Row(
        500,
        "What do users feel?",
        [
            heat(
                501,
                "Time to first token",
                "From arrival to the first token; the more a cell stands out, the more requests. A "
                "second band above the first: some wait for the pool; compare with In the queue.",
                buckets("kvscope_time_to_first_token_seconds"),
                height=9,
            ),
            quantiles(
                502,
                "Between two tokens",
                "A preemption is one long gap. p99 up with p50 flat: preemptions. Both up: large "
                "prefills in the same steps; lower --max-num-batched-tokens.",
                *(
                    Q(quantile(q, "kvscope_inter_token_latency_seconds"), f"p{q * 100:g}")
                    for q in (0.5, 0.95, 0.99)
                ),
                steps=limits.TOKEN_GAP_SECONDS,
                height=9,
            ),
            quantiles(
                503,
                "In the queue",
                "From arrival until a request first runs. Long with a full pool: more memory or "
                "replicas. Long with a pool that is not full: raise --max-num-seqs.",
                *(
                    Q(quantile(q, "kvscope_request_queue_seconds"), f"p{q * 100:g}")
                    for q in (0.5, 0.95)
                ),
                steps=limits.QUEUE_SECONDS,
                height=9,
            ),
            quantiles(
                504,
                "Whole request",
                "From arrival to the end, whatever the reason. It depends on how much was asked "
                "for: judge it beside the first token and the gaps.",
                *(
                    Q(quantile(q, "kvscope_request_duration_seconds"), f"p{q * 100:g}")
                    for q in (0.5, 0.95)
                ),
                Q(mean("kvscope_request_duration_seconds"), "mean"),
                height=9,
            ),
        ],
    )


def steps() -> Row:
    return Row(
        600,
        "What does the engine do?",
        [
            graph(
                601,
                "Requests",
                "Running and waiting; preempted ones wait. Waiting while the pool is not full: "
                "--max-num-seqs is the limit.",
                COUNT,
                Q(total(series("kvscope_requests"), "state"), "{{state}}"),
                stacked=True,
                colours={"running": "blue", "waiting": "orange"},
                axis="requests",
                span=8,
            ),
            graph(
                602,
                "Tokens computed",
                "By phase, tokens computed twice included. Decode that falls when prefill rises: "
                "lower --max-num-batched-tokens.",
                TOKENS_PER_SECOND,
                Q(total(rate("kvscope_step_tokens_total"), "phase"), "{{phase}}"),
                stacked=True,
                colours={"prefill": "light-blue", "decode": "blue"},
                span=8,
            ),
            quantiles(
                603,
                "A step",
                "Duration of an engine step: nothing reaches a user faster. p99 is the large "
                "prefills. All up: the GPU slows down; look at its clocks in Memory and OOM risk.",
                *(
                    Q(quantile(q, "kvscope_step_duration_seconds"), f"p{q * 100:g}")
                    for q in (0.5, 0.99)
                ),
                span=8,
            ),
            graph(
                604,
                "Ends",
                "How requests ended. error: see the log. abort: clients gave up, often because "
                "they waited. length: max_tokens was the limit.",
                REQUESTS_PER_SECOND,
                Q(total(rate("kvscope_requests_finished_total"), "reason"), "{{reason}}"),
                stacked=True,
                colours=limits.END_COLOURS,
                listed=True,
            ),
            graph(
                605,
                "Refusals",
                "Requests turned away, by why. queue_full: more arrive than can be served; add "
                "replicas. prompt_too_long, invalid: the client's mistake. engine_dead: restart.",
                REQUESTS_PER_SECOND,
                Q(total(rate("kvscope_requests_rejected_total"), "reason"), "{{reason}}"),
                stacked=True,
                colours={"queue_full": "orange", "engine_dead": "red"},
                listed=True,
            ),
        ],
    )
