"""Memory: how the pool got its size at start-up."""

from dashboards.kit.frame import Row
from dashboards.kit.panels import BYTES, FULL, Q, graph
from dashboards.kit.queries import series, total


def row() -> Row:
    return Row(
        400,
        "How did the pool get its size?  (at start-up; it never changes while the server runs)",
        [
            graph(
                401,
                "Terms of the rule",
                "The terms add up to the device's memory; what is left of the budget (requested) "
                "is the pool's. Empty: the size was configured, not measured. A pool smaller than "
                "expected: which term is large? in_use_at_start is other processes' memory.",
                BYTES,
                Q(total(series("kvscope_kv_pool_sizing_bytes"), "term"), "{{term}}"),
                Q(total(series("kvscope_kv_pool_sizing_total_bytes")), "total"),
                Q(total(series("kvscope_kv_pool_sizing_requested_bytes")), "requested"),
                stacked=True,
                lines=("total", "requested"),
                colours={
                    "weights": "dark-blue",
                    "kv_pool": "blue",
                    "activation_peak": "light-blue",
                    "buffers": "super-light-blue",
                    "non_torch": "purple",
                    "in_use_at_start": "red",
                    "unclaimed": "#55606e",
                    "total": "text",
                    "requested": "orange",
                },
                span=24,
                right=True,
                calcs=("lastNotNull",),
                when_absent=f"{FULL} Or the pool's size was configured, or the server does not "
                "report the terms (SGLang).",
            ),
        ],
    )
