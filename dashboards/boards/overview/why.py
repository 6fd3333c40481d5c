"""Overview: the usual causes side by side."""

from dashboards.boards.overview import starts
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.links import KV_POOL, to_dashboard
from dashboards.kit.panels import (
    REQUESTS_PER_SECOND,
    TOKENS_PER_SECOND,
    Q,
    graph,
)
from dashboards.kit.queries import (
    ENGINE,
    RATE_WINDOW,
    every_engine,
    hundredths,
    or_zero,
    rate,
    total,
)
from kvscope_monitoring import formulas


def row() -> Row:
    recomputed = total(rate("kvscope_preemption_recomputed_tokens_total"))
    regretted = or_zero(total(rate("kvscope_prefix_cache_regret_tokens_total")), every_engine())
    other_failures = formulas.api_failures(RATE_WINDOW, "", ENGINE)
    return Row(
        400,
        "Why?",
        [
            graph(
                401,
                "What did pressure cost?",
                "Tokens computed a second time, beside the useful ones. recomputed: after a "
                "preemption. regretted: in prompts whose blocks had been evicted. More KV memory, "
                "or fewer sequences at once, would save both.",
                TOKENS_PER_SECOND,
                Q(
                    f"{total(rate('kvscope_step_tokens_total'))} - {recomputed} - ({regretted})",
                    "useful",
                ),
                Q(hundredths(recomputed), "recomputed"),
                Q(hundredths(regretted), "regretted"),
                stacked=True,
                colours={"useful": "blue", "recomputed": "orange", "regretted": "yellow"},
                span=12,
                calcs=("lastNotNull", "mean"),
                link=to_dashboard("KV pool", KV_POOL),
                height=8,
            ),
            graph(
                404,
                "Ends and refusals",
                "Requests by how they ended. error: see the log. refused: turned away, for any "
                "reason; the KV pool dashboard shows the reasons. abort: clients gave up, often "
                "because they waited. stop_string_or_abort: one or the other; vLLM's scheduler "
                "does not distinguish them. other 5xx: answers of a vLLM's API server to requests "
                "that neither failed nor were refused; see its log.",
                REQUESTS_PER_SECOND,
                Q(total(rate("kvscope_requests_finished_total"), "reason"), "{{reason}}"),
                Q(total(rate("kvscope_requests_rejected_total")), "refused"),
                Q(other_failures, "other 5xx"),
                stacked=True,
                colours=limits.END_COLOURS,
                span=12,
                listed=True,
                height=8,
            ),
            starts.table(),
        ],
    )
