"""vLLM: cache and pressure, since when."""

from dashboards.boards.vllm.series import HITS, QUERIES, USAGE
from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, PER_SECOND, RATIO, TOKENS_PER_SECOND, Q, graph
from dashboards.kit.queries import BY_ENGINE, mean, rate, series, total, worst
from kvscope_monitoring.formulas import share


def row() -> Row:
    return Row(
        300,
        "Since when: cache and pressure",
        [
            graph(
                301,
                "KV cache in use",
                "Referenced blocks. Long at the top: preemptions follow. vLLM does not report the "
                "cached blocks beside them.",
                RATIO,
                *outstanding(worst(USAGE, BY_ENGINE), rank="avg"),
                high=1,
                steps=limits.POOL_USAGE,
                span=8,
            ),
            graph(
                302,
                "Preemptions",
                "Requests that lost their blocks. Compare with first tokens and gaps: vLLM does "
                "not count what preemptions cost.",
                PER_SECOND,
                *outstanding(total(rate("vllm:num_preemptions_total"), BY_ENGINE)),
                span=8,
            ),
            graph(
                303,
                "Prefix hit ratio",
                "Prompt tokens found over prompt tokens asked for. A fall: prompts changed, or "
                "the cache became too small; vLLM does not report which.",
                RATIO,
                *outstanding(
                    share(total(HITS, BY_ENGINE), total(QUERIES, BY_ENGINE)),
                    lowest=True,
                    rank="avg",
                ),
                high=1,
                span=8,
            ),
            graph(
                304,
                "Waiting, by reason",
                "capacity: no room in the cache or in the batch. deferred: an adapter, a grammar "
                "or a transfer of KV is not ready. Since vLLM 0.20.",
                COUNT,
                Q(total(series("vllm:num_requests_waiting_by_reason"), "reason"), "{{reason}}"),
                stacked=True,
                colours={"capacity": "orange", "deferred": "purple"},
                axis="requests",
                span=8,
                when_absent="unknown",
            ),
            graph(
                305,
                "Preemptions a request",
                "How often a request that ended had been preempted, on average: 1 means that each "
                "was computed twice. Lower --max-num-seqs. Since vLLM 0.30.",
                COUNT,
                *outstanding(mean("vllm:request_num_preemptions", BY_ENGINE)),
                span=8,
                when_absent="unknown",
            ),
            graph(
                306,
                "Prompt tokens, by source",
                "Computed, found in the prefix cache, or loaded by a connector. Much computed with "
                "long shared prompts: look at the hit ratio. Since vLLM 0.16.",
                TOKENS_PER_SECOND,
                Q(total(rate("vllm:prompt_tokens_by_source_total"), "source"), "{{source}}"),
                stacked=True,
                colours={
                    "local_compute": "#55606e",
                    "local_cache_hit": "green",
                    "external_kv_transfer": "light-blue",
                },
                span=8,
                when_absent="unknown",
            ),
        ],
    )
