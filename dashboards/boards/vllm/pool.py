"""vLLM: cache and pressure, since when."""

from dashboards.boards.vllm.series import HITS, QUERIES, USAGE
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import PER_SECOND, RATIO, Q, graph
from dashboards.kit.queries import BY_ENGINE, ENGINE_LEGEND, rate, total, worst
from monitoring.formulas import share


def row() -> Row:
    return Row(
        300,
        "Since when: cache and pressure",
        [
            graph(
                301,
                "KV cache in use",
                "Referenced blocks. Long at the top: preemptions follow. vLLM does not say "
                "what is cached beside them.",
                RATIO,
                Q(worst(USAGE, BY_ENGINE), ENGINE_LEGEND),
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
                Q(total(rate("vllm:num_preemptions_total"), BY_ENGINE), ENGINE_LEGEND),
                span=8,
            ),
            graph(
                303,
                "Prefix hit ratio",
                "Prompt tokens found over prompt tokens asked for. A fall: prompts changed, or the "
                "cache became too small; vLLM does not say which of the two.",
                RATIO,
                Q(share(total(HITS, BY_ENGINE), total(QUERIES, BY_ENGINE)), ENGINE_LEGEND),
                high=1,
                span=8,
            ),
        ],
    )
