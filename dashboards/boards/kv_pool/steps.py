"""KV pool: what does the engine do?"""

from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import largest, quantile_lines
from dashboards.kit.frame import Row
from dashboards.kit.panels import (
    COUNT,
    REQUESTS_PER_SECOND,
    TOKENS_PER_SECOND,
    Panel,
    Q,
    graph,
    quantiles,
)
from dashboards.kit.queries import rate, series, total


def row() -> Row:
    return Row(
        600,
        "What does the engine do?",
        [
            graph(
                601,
                "Requests",
                "Running and waiting; preempted ones wait, those with their KV on the host as "
                "swapped. Waiting while the pool is not full: "
                "--max-num-seqs is the limit.",
                COUNT,
                Q(total(series("kvscope_requests"), "state"), "{{state}}"),
                stacked=True,
                colours={"running": "blue", "waiting": "orange", "swapped": "purple"},
                axis="requests",
                span=8,
            ),
            graph(
                602,
                "Tokens computed",
                "By phase, recomputed tokens included. Decode that falls when prefill rises: "
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
                "Duration of an engine step, the lower bound of any token's latency. p99 shows "
                "the large prefills. If all go up, the GPU slows down; look at its clocks in "
                "Memory and OOM risk.",
                *quantile_lines("kvscope_step_duration_seconds", 0.5, 0.99),
                span=8,
            ),
            graph(
                604,
                "Ends",
                "How requests ended. error: see the log. abort: clients gave up, often because "
                "they waited. stop_string_or_abort: one or the other; vLLM's scheduler does not "
                "distinguish them. length: max_tokens was the limit.",
                REQUESTS_PER_SECOND,
                Q(total(rate("kvscope_requests_finished_total"), "reason"), "{{reason}}"),
                stacked=True,
                colours=limits.END_COLOURS,
                span=8,
                listed=True,
            ),
            graph(
                605,
                "Refusals",
                "Requests turned away, by reason. queue_full: more arrive than can be served; add "
                "replicas. client_limit: one client has reached its limit. prompt_too_long, "
                "invalid: the client's mistake. engine_dead: restart.",
                REQUESTS_PER_SECOND,
                Q(total(rate("kvscope_requests_rejected_total"), "reason"), "{{reason}}"),
                stacked=True,
                colours={"queue_full": "orange", "engine_dead": "red"},
                span=8,
                listed=True,
                when_absent="Not reported by these servers.",
            ),
            _tenants(),
        ],
    )


def _tenants() -> Panel:
    return graph(
        606,
        "Who asks?",
        "Prompt and output tokens, by tenant: one can fill a pool for all others. Named by the "
        "hash of `user`, or of a vLLM's `cache_salt`, session or what KVSCOPE_OBSERVER_TENANT in "
        "its environment names. For each tenant's waiting time, "
        "preemptions and share of the prompt that was computed: `kvscope tenants "
        "http://SERVER:PORT...`, over any number of servers.",
        TOKENS_PER_SECOND,
        *largest("kvscope_top_tenant_tokens_total", "tenant"),
        stacked=True,
        colours={"other": "#55606e"},
        span=8,
        listed=True,
    )
