"""vLLM: features that only some servers have enabled."""

from dashboards.boards.vllm.series import EXTERNAL_HITS, EXTERNAL_QUERIES, of_state
from dashboards.kit import thresholds as limits
from dashboards.kit.fleet import among, outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import RATIO, SECONDS, TOKENS, Q, graph, timeline
from dashboards.kit.queries import BY_ENGINE, quantile, rate, total, worst
from kvscope_monitoring.formulas import share

_RESIDENCY = {
    "lifetime": "allocated to evicted",
    "idle_before_evict": "last use to evicted",
    "reuse_gap": "use to use",
}
_SLEEP = {
    0: ("awake", limits.GREEN),
    1: ("weights offloaded", limits.ORANGE),
    2: ("all discarded", limits.RED),
}
_SPECULATED = "vllm:spec_decode_num"


def _asleep() -> str:
    awake, discarded = (worst(of_state(state), BY_ENGINE) for state in ("awake", "discard_all"))
    return f"(1 - {awake}) * (1 + {discarded})"


def row() -> Row:
    accepted, drafted, drafts = (
        total(rate(f"{_SPECULATED}_{name}_total"), "model_name")
        for name in ("accepted_tokens", "draft_tokens", "drafts")
    )
    return Row(
        700,
        "What else is there, where it is switched on?",
        [
            graph(
                701,
                "External hit ratio",
                "Tokens found through a KV connector over those looked up there, after the local "
                "cache. Empty without a connector. A fall: the tier is too small, or not reached.",
                RATIO,
                *outstanding(
                    share(total(EXTERNAL_HITS, BY_ENGINE), total(EXTERNAL_QUERIES, BY_ENGINE)),
                    lowest=True,
                    rank="avg",
                ),
                high=1,
                span=8,
                height=5,
                when_absent="no connector",
            ),
            graph(
                702,
                "Drafted tokens accepted",
                "Speculative decoding: accepted over drafted tokens. Low: drafting costs more than "
                "it saves; draft fewer tokens at a time, or none under load.",
                RATIO,
                Q(share(accepted, drafted), "{{model_name}}"),
                high=1,
                span=8,
                height=5,
                when_absent="no speculative decoding",
            ),
            graph(
                703,
                "Tokens of one step",
                "Speculative decoding: tokens that a request gains per step, its own and those "
                "accepted. Near 1: switch it off.",
                TOKENS,
                Q(f"1 + {share(accepted, drafts)}", "{{model_name}}"),
                span=8,
                height=5,
                when_absent="no speculative decoding",
            ),
            graph(
                704,
                "How long blocks stay",
                "Medians of sampled blocks, with --kv-cache-metrics. Evicted sooner than used "
                "again: the cache is too small for its prefixes.",
                SECONDS,
                *(
                    Q(quantile(0.5, f"vllm:kv_block_{name}_seconds"), legend)
                    for name, legend in _RESIDENCY.items()
                ),
                height=5,
                when_absent="without --kv-cache-metrics",
            ),
            timeline(
                705,
                "Sleep",
                "Whether engines sleep, and how deeply; of many, the ten that slept most. Asleep "
                "behind a load balancer: POST /wake_up, or take the server out.",
                among(_asleep(), rank="avg"),
                meanings=_SLEEP,
                height=5,
                when_absent="unknown",
            ),
        ],
    )
