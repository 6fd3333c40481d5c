"""Families of the forecast of the KV pool."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from exporter.collect.families import Families
from exporter.fold import Exhaustion
from kvscope_events.events import Hello


def collect_exhaustion(
    families: Families, exhaustion: Exhaustion, _engine: Hello
) -> Iterator[Family]:
    committed = exhaustion.committed_blocks
    if committed is not None:
        yield families.single("kvscope_kv_committed_blocks", committed)
    seconds = exhaustion.seconds_to_exhaustion
    if seconds is not None:
        yield families.single("kvscope_kv_time_to_exhaustion_seconds", seconds)
    arrived_ns = exhaustion.batch.arrived_ns
    probabilities = exhaustion.probabilities(families.age(arrived_ns) if arrived_ns else 0.0)
    if probabilities:
        by_horizon = {str(horizon): value for horizon, value in probabilities.items()}
        yield families.column("kvscope_kv_exhaustion_probability", by_horizon)
