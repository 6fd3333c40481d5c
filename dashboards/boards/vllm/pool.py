"""vLLM: cache and pressure, since when."""

from dashboards.boards.vllm.series import HITS, QUERIES, USAGE
from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import PER_SECOND, RATIO, TOKENS, Panel, Q, graph
from dashboards.kit.queries import BY_ENGINE, quantile, rate, total, worst
from kvscope_monitoring.formulas import share


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


def row() -> Row:
    return Row(
        300,
        "Since when: cache, pressure and lengths",
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
            _lengths(
                304,
                "Prompt lengths",
                "Tokens of the prompts that ended, by model: the buckets end at each model's "
                "longest sequence. It rises: callers send more, and fewer fit the pool at once.",
                "vllm:request_prompt_tokens",
            ),
            _lengths(
                305,
                "Reply lengths",
                "Tokens generated for the requests that ended, by model. Long replies hold their "
                "blocks longest. p50 close to p95: callers run into their limit.",
                "vllm:request_generation_tokens",
            ),
        ],
    )
