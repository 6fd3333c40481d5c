"""The cost of preemption, by mode and cause."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from kvscope_events.events import Hello
from kvscope_exporter.collect.families import Families
from kvscope_exporter.state.preemption import UNATTRIBUTED, Preemption


def collect_preemption(
    families: Families, preemption: Preemption, engine: Hello
) -> Iterator[Family]:
    """Counters; resumptions after an unseen preemption are a series without mode and cause."""
    told = preemption.costs
    seen = {kind: costs for kind, costs in told.items() if kind != UNATTRIBUTED}
    yield families.table(
        "kvscope_preemptions_total", {kind: costs.preemptions for kind, costs in seen.items()}
    )
    yield families.table(
        "kvscope_preemption_discarded_tokens_total",
        {kind: costs.discarded_tokens for kind, costs in seen.items()},
    )
    yield families.table(
        "kvscope_preemption_found_tokens_total",
        {kind: costs.found_tokens for kind, costs in told.items()},
    )
    yield families.table(
        "kvscope_preemption_recomputed_tokens_total",
        {kind: costs.recomputed_tokens for kind, costs in told.items()},
    )
    yield families.table(
        "kvscope_preemption_stalled_seconds_total",
        {kind: costs.stalled_ns / 1e9 for kind, costs in told.items()},
    )
